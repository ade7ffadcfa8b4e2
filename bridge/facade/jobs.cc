// The facade's job tools: what became of a call that was answered with a job, or whose caller left.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "bridge/facade/facade.h"
#include "bridge/facade/rendering.h"
#include "bridge/spliced_text.h"
#include "core/runtime/strings.h"

namespace callboard::bridge {
namespace {

constexpr absl::Duration kWaitDefault = absl::Seconds(30);

bool IsCallId(std::string_view text) {
  constexpr size_t kHexDigits = 32;
  return text.size() == kHexDigits && std::ranges::all_of(text, [](char c) {
           return absl::ascii_isxdigit(static_cast<unsigned char>(c));
         });
}

}  // namespace

void Facade::Job(RequestExchange& exchange, FacadeTool tool, const FacadeArguments& arguments) {
  if (arguments.job_id.empty()) {
    return AnswerStatus(exchange,
                        absl::InvalidArgumentError(
                            "job_id is missing; an answer with status running or pending has it"));
  }
  v1::CallRef request;
  if (IsCallId(arguments.job_id)) {
    request.set_call_id(absl::HexStringToBytes(arguments.job_id));
  } else {
    request.set_backend_job_id(arguments.job_id);
  }
  // A job of somebody else is not found.
  request.set_session_id(exchange.spec().session_id);
  request.set_with_outcome(arguments.include_result);
  const bool waits = tool == FacadeTool::kJobsWait;
  auto answer = [this, &exchange, waits,
                 job_id = arguments.job_id](const absl::StatusOr<v1::Call>& call) {
    if (!call.ok()) {
      if (call.status().code() != absl::StatusCode::kNotFound) {
        return AnswerStatus(exchange, call.status());
      }
      return AnswerStatus(
          exchange,
          core::MakeError(absl::StatusCode::kNotFound,
                          fmt::format("no job '{}' of yours; jobs are kept for a while after "
                                      "their end, and only their own caller sees them",
                                      job_id.substr(0, 100))));
    }
    AnswerJob(exchange, *call, waits);
  };
  if (!waits) {
    auto reply = exchange.Guard(std::move(answer));
    if (tool == FacadeTool::kJobsCancel) {
      return core_.client.CancelCall(std::move(request), std::move(reply));
    }
    return core_.client.GetCall(std::move(request), std::move(reply));
  }
  // Whoever waits for a job must not be cut for it.
  const absl::Duration wait =
      std::min(arguments.timeout.value_or(kWaitDefault), core_.config.envelope_after);
  request.set_wait_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(wait)));
  exchange.Expect(wait + core_.config.unary_wait);
  core_.client.WaitCall(std::move(request), exchange.Guard(std::move(answer)));
}

void Facade::AnswerJob(RequestExchange& exchange, const v1::Call& call, bool waits) {
  const bool is_error = waits && EndedBadly(call);
  if (!HasLargeResult(call)) return AnswerDocument(exchange, RenderJob(call, waits), is_error);
  LargeAnswer answer;
  answer.token = SplicedText::Token(core_.random.Hex(16));
  answer.call.set_call_id(call.call_id());
  answer.call.set_session_id(exchange.spec().session_id);
  v1::Call shown = call;
  shown.mutable_outcome()->mutable_body()->set_inline_(answer.token);
  answer.text =
      core::MakeResult(exchange.spec().raw_id,
                       DocumentResult(RenderJob(shown, waits), exchange.spec().revision, is_error));
  answer.otherwise = [this, &exchange, told = call, waits,
                      is_error](absl::StatusOr<v1::CallOutcome> outcome) mutable {
    if (outcome.ok()) {
      *told.mutable_outcome() = *std::move(outcome);
    } else if (outcome.status().code() != absl::StatusCode::kUnimplemented) {
      told.mutable_outcome()->set_message(std::string(core::Message(outcome.status())));
    }
    AnswerDocument(exchange, RenderJob(told, waits), is_error);
  };
  exchange.AnswerLarge(std::move(answer));
}

}  // namespace callboard::bridge
