// Fuzzes the frames of an agent: whatever one agent says, another agent's seat stays live and
// nothing is left behind.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>

#include <string>

#include "core/runtime/lifetime.h"
#include "core/runtime/offload.h"
#include "core/runtime/random.h"
#include "server/flows/control_plane.h"
#include "server/store/memory_bodies.h"
#include "server/store/memory_store.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/virtual_loop.h"

using namespace callboard;

namespace {

// Its bytes with the entries of maps in order: two equal frames have the same.
std::string SortedText(const v1::AgentFrame& frame) {
  std::string text;
  {
    google::protobuf::io::StringOutputStream out(&text);
    google::protobuf::io::CodedOutputStream coded(&out);
    coded.SetSerializationDeterministic(true);
    FUZZ_CHECK(frame.SerializeToCodedStream(&coded));
  }
  return text;
}

// The agent's end of a link; what the control plane writes is taken and forgotten.
class Wire final : public server::AgentLink {
 public:
  Wire(tests::VirtualLoop& loop, Wire** place) : loop_(loop), place_(place) { *place = this; }
  ~Wire() override { *place_ = nullptr; }
  void Open(Handler* handler) override { handler_ = handler; }
  void Write(v1::ServerFrame) override {
    loop_.Post(lifetime_.Wrap([this] {
      if (handler_ != nullptr) handler_->OnWritten();
    }));
  }
  void Close(absl::Status) override { handler_ = nullptr; }
  // A frame as gRPC delivers it; bytes that are none end the stream.
  void Say(const std::string& bytes) {
    v1::AgentFrame frame;
    if (handler_ == nullptr || !frame.ParseFromString(bytes)) return;
    const std::string text = SortedText(frame);
    v1::AgentFrame again;
    FUZZ_CHECK(again.ParseFromString(text) && SortedText(again) == text);
    handler_->OnMessage(std::move(frame));
  }

 private:
  tests::VirtualLoop& loop_;
  Wire** place_;
  Handler* handler_ = nullptr;
  core::Lifetime lifetime_;
};

std::string Opening(const std::string& agent, const std::string& seat) {
  v1::AgentFrame frame;
  v1::Hello& hello = *frame.add_items()->mutable_hello();
  hello.set_protocol_min(1);
  hello.set_protocol_max(1);
  hello.set_agent_id(agent);
  hello.set_boot_id("boot");
  hello.set_link_epoch(1);
  hello.set_journal_id("journal");
  hello.mutable_limits()->set_window(64 << 10);
  v1::SeatState& state = *frame.add_items()->mutable_seat_state();
  state.set_seat_id(seat);
  state.set_incarnation(1);
  state.set_name(agent);
  state.set_app("maya");
  state.mutable_health()->set_process(v1::HEALTHY);
  frame.add_items()->mutable_inventory_done();
  return frame.SerializeAsString();
}

}  // namespace

// The first byte says whether the opening is made for it (odd) or part of the input (even); frames
// follow, each after two bytes of length.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  google::protobuf::SetLogHandler(nullptr);  // it writes a line for every text that is not UTF-8
  tests::VirtualLoop loop;
  core::SeededRandom random(7);
  core::InlineOffload offload(loop);
  server::MemoryStore store(loop, "c1a57e7");
  server::MemoryBodies bodies;
  server::ControlPlane plane(loop, random, offload, store, bodies, {});
  Wire* good = nullptr;
  Wire* bad = nullptr;
  const auto attach = [&](Wire** wire) {
    plane.AttachAgent(std::make_unique<Wire>(loop, wire), {});
    loop.RunReady();
  };
  const std::string good_seat = "600d5ea7000000000000000000000000";
  attach(&good);
  good->Say(Opening("good", good_seat));
  attach(&bad);
  if (bad != nullptr && data[0] % 2 == 1) {
    bad->Say(Opening("bad", "bad05ea7000000000000000000000000"));
  }
  loop.RunReady();

  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  while (bytes.size() >= 2 && bad != nullptr) {
    const size_t length = static_cast<uint8_t>(bytes[0]) * 256u + static_cast<uint8_t>(bytes[1]);
    bytes.remove_prefix(2);
    bad->Say(std::string(bytes.substr(0, length)));
    bytes.remove_prefix(std::min(length, bytes.size()));
    loop.RunReady();
  }
  loop.RunFor(absl::Seconds(2));

  v1::ListInstancesRequest request;
  request.mutable_target()->set_instance(good_seat);
  const v1::ListInstancesResponse rows = plane.ListInstances(request);
  FUZZ_CHECK(rows.instances_size() == 1 && rows.instances(0).seat_id() == good_seat);
  FUZZ_CHECK(good != nullptr);
  return 0;
}
