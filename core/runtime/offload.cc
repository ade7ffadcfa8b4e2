// The thread behind MakeThreadOffload().
#include "core/runtime/offload.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace callboard::core {
namespace {

class ThreadOffload final : public Offload {
 public:
  explicit ThreadOffload(EventLoop& loop) : loop_(loop), thread_([this] { Work(); }) {}

  ~ThreadOffload() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  void Run(absl::AnyInvocable<void()> work, absl::AnyInvocable<void()> done) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      queue_.push_back({std::move(work), std::move(done)});
    }
    wake_.notify_one();
  }

 private:
  struct Item {
    absl::AnyInvocable<void()> work;
    absl::AnyInvocable<void()> done;
  };

  void Work() {
    for (;;) {
      Item item;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        if (stopping_) return;
        item = std::move(queue_.front());
        queue_.pop_front();
      }
      item.work();
      loop_.Post(std::move(item.done));
    }
  }

  EventLoop& loop_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Item> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Offload> MakeThreadOffload(EventLoop& loop) {
  return std::make_unique<ThreadOffload>(loop);
}

}  // namespace callboard::core
