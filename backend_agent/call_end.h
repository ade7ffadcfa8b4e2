// Makes the end of a call from its parts.
#pragma once

#include <string>
#include <utility>

#include "backend_agent/seat.h"

namespace callboard::agent {

// `detail` is a sentence for a person.
inline CallEnd MakeEnd(v1::OutcomeClass outcome_class, v1::Reason reason, v1::Certainty certainty,
                       std::string detail = "") {
  CallEnd end;
  end.outcome_class = outcome_class;
  end.reason = reason;
  end.certainty = certainty;
  end.facts.set_detail(std::move(detail));
  return end;
}

// Why a call ends that was cancelled.
inline v1::Reason ReasonOf(v1::Cancel::Why why) {
  switch (why) {
    case v1::Cancel::DEADLINE:
      return v1::CANCELLED_BY_DEADLINE;
    case v1::Cancel::PARENT:
      return v1::CANCELLED_BY_PARENT;
    case v1::Cancel::ADMIN:
      return v1::CANCELLED_BY_ADMIN;
    default:
      return v1::CANCELLED_BY_CLIENT;
  }
}

// The call has run, but the text of its result is no longer kept.
inline void MarkBodyLost(v1::Outcome& outcome) {
  outcome.set_class_(v1::LOST);
  outcome.set_reason(v1::BODY_LOST);
  outcome.set_certainty(v1::FINISHED);
  outcome.mutable_facts()->set_detail(
      "the call has finished, but its result is no longer in the agent's spool");
}

}  // namespace callboard::agent
