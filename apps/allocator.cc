// How the programs that run for long keep memory: settings of jemalloc.
//
// Read by jemalloc before main (its manual, TUNING). Two arenas serve the few busy threads of a
// program. Free pages go back to the system after a second, by a thread of jemalloc's own, so that
// an idle program is small, too.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "narenas:2,background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0";
}
