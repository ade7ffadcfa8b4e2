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

}  // namespace callboard::agent
