// Switches by which the tests' own build plants known bugs, to prove that the simulation finds
// them.
#pragma once

namespace callboard::core {

enum class PlantedBug {
  kNone,
  kLostAck,         // an acknowledgement of events is never sent
  kDoubleTerminal,  // a call is ended twice towards its waiter
  kSkippedEvent,    // a stream leaves out an event on replay
  kWrongSession,    // an event is appended to another session's stream
  kRerunAfterCut,   // a call that had started is dispatched again after a cut
  kAnswerTwice,     // an answer to an ask is delivered to the DCC twice
  kAnswerOfOthers,  // an ask may be answered by any session

  kShownBeforeDurable,    // readers are shown events that the store may still lose
  kSettledBeforeDurable,  // an agent may forget what the store may still lose
  kTermNotRaised,         // after a restart events are numbered in the former term
  kReplayFromWrongTerm,   // an id of a former term is taken for one of this term
  kReceiptLost,           // ended calls leave nothing in the store
  kSettledBeforeBody,     // an agent may forget a large result that is not whole here
};

#ifdef CALLBOARD_PLANTED_BUGS
inline PlantedBug g_planted_bug = PlantedBug::kNone;
inline bool Planted(PlantedBug bug) { return g_planted_bug == bug; }
#else
// Folds to `false`: a product build holds no trace of it.
constexpr bool Planted(PlantedBug) { return false; }
#endif

}  // namespace callboard::core
