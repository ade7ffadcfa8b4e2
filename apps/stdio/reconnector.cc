// Implementation of Reconnector.
#include "apps/stdio/reconnector.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace callboard::apps {
namespace {

constexpr size_t kResultsKept = 8;
constexpr int kFailuresAtLevelOne = 2;

}  // namespace

std::string_view StateName(LinkState state) {
  switch (state) {
    case LinkState::kIdle:
      return "idle";
    case LinkState::kConnecting:
      return "connecting";
    case LinkState::kConnected:
      return "connected";
    case LinkState::kResuming:
      return "resuming";
    case LinkState::kReRegistering:
      return "re-registering";
    case LinkState::kFailed:
      return "failed";
  }
  return "idle";
}

void Reconnector::Open() {
  if (state_ != LinkState::kIdle) return;
  Begin(LinkState::kConnecting, config_.connect_budget);
  Try();
}

void Reconnector::Lost(bool gone, std::string detail, absl::Duration budget) {
  if (state_ != LinkState::kConnected) return;
  Begin(gone ? LinkState::kReRegistering : LinkState::kResuming, budget);
  Note(std::move(detail));
  if (gone) return Try();
  TryLater();
}

void Reconnector::Begin(LinkState state, absl::Duration budget) {
  state_ = state;
  failures_ = 0;
  attempts_ = 0;
  results_.clear();
  since_ = loop_.Now();
  budget_ = loop_.After(budget, [this] {
    Fail("reconnect_budget_spent", results_.empty() ? std::string() : results_.back());
  });
}

void Reconnector::TryLater() {
  timer_ = loop_.After(wait_, [this] { Try(); });
  wait_ = std::min(config_.wait_max, wait_ * 2);
}

void Reconnector::Try() {
  ++attempts_;
  trying_ = true;
  timer_ = loop_.After(config_.attempt_timeout, [this] {
    host_.Abandon();
    Tried(Attempt::kFailed,
          fmt::format("no answer within {}", absl::FormatDuration(config_.attempt_timeout)));
  });
  opening_ = opening_ || state_ == LinkState::kConnecting;
  if (opening_) {
    host_.Initialize();
  } else {
    host_.Probe();
  }
}

void Reconnector::Tried(Attempt attempt, std::string detail) {
  if (!std::exchange(trying_, false)) return;
  timer_.Cancel();
  const bool opened = std::exchange(opening_, false);
  if (!detail.empty()) Note(fmt::format("{}: {}", StateName(state_), detail));
  switch (attempt) {
    case Attempt::kValid:
      if (state_ == LinkState::kConnecting) return Connected();
      ++(opened ? counts_.re_registered : counts_.resumed);
      opening_ = opened;  // which of both it was
      return Connected();
    case Attempt::kGone:
      if (opened) break;
      if (std::exchange(state_, LinkState::kReRegistering) == LinkState::kReRegistering) {
        opening_ = true;
      }
      failures_ = 0;
      return Try();
    case Attempt::kUnauthenticated:
    case Attempt::kForbidden:
      return Refused(attempt, std::move(detail));
    case Attempt::kFailed:
      break;
  }
  if (state_ == LinkState::kReRegistering) {
    state_ = LinkState::kResuming;
  } else if (state_ == LinkState::kResuming && ++failures_ == kFailuresAtLevelOne) {
    state_ = LinkState::kReRegistering;
    failures_ = 0;
  }
  TryLater();
}

void Reconnector::Connected() {
  const bool anew = std::exchange(opening_, false);
  const LinkState before = std::exchange(state_, LinkState::kConnected);
  EndTimers();
  host_.OnConnected(before == LinkState::kConnecting ? Success::kOpened
                    : anew                           ? Success::kReRegistered
                                                     : Success::kResumed);
}

void Reconnector::Refused(Attempt attempt, std::string detail) {
  if (state_ == LinkState::kIdle || state_ == LinkState::kFailed) return;
  Fail(attempt == Attempt::kForbidden ? "forbidden" : "unauthenticated", std::move(detail));
}

void Reconnector::Fail(std::string_view reason, std::string detail) {
  ++counts_.failed;
  state_ = LinkState::kFailed;
  EndTimers();
  if (std::exchange(trying_, false)) host_.Abandon();
  opening_ = false;
  host_.OnFailed({reason, std::move(detail)});
  state_ = LinkState::kIdle;
  wait_ = config_.wait_first;
}

void Reconnector::Stop() {
  state_ = LinkState::kIdle;
  EndTimers();
  if (std::exchange(trying_, false)) host_.Abandon();
  opening_ = false;
}

void Reconnector::EndTimers() {
  budget_.Cancel();
  timer_.Cancel();
}

void Reconnector::Note(std::string result) {
  results_.push_back(std::move(result));
  if (results_.size() > kResultsKept) results_.pop_front();
}

absl::Duration Reconnector::away() const {
  return state_ == LinkState::kConnected || state_ == LinkState::kIdle ? absl::ZeroDuration()
                                                                       : loop_.Now() - since_;
}

}  // namespace callboard::apps
