// Seats whose backend the test makes one of 2026-07-28: of both eras, or of that one alone.
#pragma once

#include <string>

#include "tests/unit/agent_seats/seat_fixture.h"

namespace callboard::agent {

class ModernBackend : public SeatFixture {
 protected:
  void Find(const std::string& discover_result) {
    backend->asked_for_its_era = true;
    BringUp();
    backend->Answer(backend->Last("server/discover").exchange, discover_result);
    loop.RunReady();
  }
  CallSpec ModernTool(const std::string& id) {
    CallSpec spec = Tool(id);
    spec.params = Payload(R"({"name":"x","_meta":{"k":1.0}})");
    spec.modern = true;
    spec.client_capabilities = R"({"sampling":{}})";
    spec.client_info = R"({"name":"c"})";
    spec.log_level = "info";
    return spec;
  }

  const std::string kBoth =
      R"({"supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"extensions":{"x":{}}}})";
};

class ModernOnlyBackend : public ModernBackend {
 protected:
  void Find(const std::string& discover_result) {
    backend->asked_for_its_era = true;
    backend->answers_initialize = false;
    BringUp();
    backend->Say(core::MakeErrorResponse(fmt::format("{}", backend->Last("initialize").exchange),
                                         -32601, "Method not found"));
    loop.RunReady();
    backend->Answer(backend->Last("server/discover").exchange, discover_result);
    loop.RunFor(absl::Milliseconds(1));
    told.clear();
  }
  void SetUp() override {
    Find(
        R"({"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"instructions":"be kind",)"
        R"("ttlMs":5,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"new"},"com.example/k":2.0}})");
  }
  void Reply(const std::string& result) {
    backend->Answer(LastCall(), result);
    loop.RunReady();
  }
  CallSpec Asking(const std::string& id) {
    CallSpec spec = Tool(id);
    spec.client_capabilities = R"({"elicitation":{}})";
    return spec;
  }

  const std::string kAsks =
      R"({"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create",)"
      R"("params":{"message":"?"}},"b":{"method":"roots/list"}},"requestState":"s\u0031"})";
};

}  // namespace callboard::agent
