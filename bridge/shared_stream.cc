// Implementation of SharedStream.
#include "bridge/shared_stream.h"

#include <algorithm>
#include <utility>

namespace callboard::bridge {

class SharedStream::BranchStream final : public MessageStream {
 public:
  BranchStream(std::weak_ptr<SharedStream> trunk, uint64_t number)
      : trunk_(std::move(trunk)), number_(number) {}
  ~BranchStream() override {
    if (const auto trunk = trunk_.lock(); trunk && open_) trunk->Leave(number_);
  }

  bool open() const override { return open_ && !trunk_.expired(); }
  bool resumable() const override { return false; }
  void Event(std::string_view, std::string_view data, More more) override {
    Put(Part::Kind::kWhole, std::string(data), std::move(more));
  }
  void BeginEvent(std::string_view, std::string_view data) override {
    Put(Part::Kind::kBegin, std::string(data), nullptr);
  }
  void Piece(std::string data, Written written) override {
    Put(Part::Kind::kPiece, std::move(data), std::move(written));
  }
  void FinishEvent(std::string_view data) override {
    Put(Part::Kind::kFinish, std::string(data), nullptr);
  }
  void End() override { open_ = false; }
  void Cut(StreamEnd) override {
    // Also while it waits for its turn: its request would never be answered.
    if (const auto trunk = trunk_.lock(); trunk && std::exchange(open_, false)) {
      trunk->writer_.Cut();
    }
  }

 private:
  void Put(Part::Kind kind, std::string text, Written then) {
    const auto trunk = trunk_.lock();
    if (trunk && open_) trunk->Put({number_, kind, std::move(text), std::move(then)});
  }

  std::weak_ptr<SharedStream> trunk_;
  const uint64_t number_;
  bool open_ = true;
};

std::unique_ptr<MessageStream> SharedStream::Branch() {
  return std::make_unique<BranchStream>(weak_from_this(), ++branches_);
}

void SharedStream::Event(std::string data, MessageStream::More more) {
  Put({++branches_, Part::Kind::kWhole, std::move(data), std::move(more)});
}

void SharedStream::Put(Part part) {
  const auto is_of_it = [&part](const Part& other) { return other.branch == part.branch; };
  if (MayGo(part) && std::none_of(waiting_.begin(), waiting_.end(), is_of_it)) {
    return Write(std::move(part));
  }
  waiting_bytes_ += part.text.size();
  waiting_.push_back(std::move(part));
}

void SharedStream::Write(Part part) {
  switch (part.kind) {
    case Part::Kind::kWhole:
      return writer_.Event({}, part.text, std::move(part.then));
    case Part::Kind::kBegin:
      holder_ = part.branch;
      return writer_.BeginEvent({}, part.text);
    case Part::Kind::kPiece:
      return writer_.Piece(std::move(part.text), std::move(part.then));
    case Part::Kind::kFinish:
      writer_.FinishEvent(part.text);
      holder_ = 0;
      return GoOn();
  }
}

void SharedStream::Leave(uint64_t branch) {
  if (holder_ == branch) return writer_.Cut();
  std::erase_if(waiting_, [this, branch](const Part& part) {
    if (part.branch != branch) return false;
    waiting_bytes_ -= part.text.size();
    return true;
  });
}

void SharedStream::GoOn() {
  while (true) {
    const auto next = std::find_if(waiting_.begin(), waiting_.end(),
                                   [this](const Part& part) { return MayGo(part); });
    if (next == waiting_.end()) return;
    Part part = std::move(*next);
    waiting_.erase(next);
    waiting_bytes_ -= part.text.size();
    Write(std::move(part));
  }
}

}  // namespace callboard::bridge
