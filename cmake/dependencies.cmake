# Where the libraries come from; versions are those of Debian 12 (tools/install_packages).
find_package(Threads REQUIRED)
find_package(OpenSSL 3.0 REQUIRED)
find_package(Protobuf CONFIG QUIET)
if(NOT Protobuf_FOUND)
  find_package(Protobuf MODULE REQUIRED)
endif()
find_package(absl CONFIG REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(Boost 1.81 REQUIRED CONFIG COMPONENTS json url)
find_package(simdjson CONFIG REQUIRED)
find_package(fmt CONFIG REQUIRED)
find_package(tomlplusplus CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(valijson CONFIG REQUIRED)
find_package(SQLite3 REQUIRED)
find_library(CALLBOARD_JEMALLOC jemalloc REQUIRED)
if(CALLBOARD_TESTS)
  find_package(GTest CONFIG REQUIRED)
endif()
if(CALLBOARD_BENCH)
  find_package(benchmark CONFIG REQUIRED)
endif()

# One unit holds Asio's and Beast's separately compiled code (net/beast_impl.cc, core/runtime/asio_impl.cc).
add_library(callboard_boost INTERFACE)
target_link_libraries(callboard_boost INTERFACE Boost::headers Threads::Threads)
target_compile_definitions(callboard_boost INTERFACE BOOST_ASIO_SEPARATE_COMPILATION
  BOOST_BEAST_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED)

add_library(callboard_absl INTERFACE)
target_link_libraries(callboard_absl INTERFACE absl::status absl::statusor absl::time absl::strings
  absl::flat_hash_map absl::flat_hash_set absl::any_invocable absl::cleanup fmt::fmt)
