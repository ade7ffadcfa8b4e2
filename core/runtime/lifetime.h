// Lets a callback outlive the object it would call into: it then does nothing.
#pragma once

#include <memory>
#include <utility>

namespace callboard::core {

// A member of an object that hands out callbacks. Wrap() returns a callable that runs `fn` only
// while this Lifetime exists. Loop thread only: it guards against destruction, not against threads.
class Lifetime {
 public:
  Lifetime() : token_(std::make_shared<char>()) {}
  Lifetime(const Lifetime&) = delete;
  Lifetime& operator=(const Lifetime&) = delete;

  template <class Fn>
  auto Wrap(Fn fn) const {
    return [weak = std::weak_ptr<char>(token_), fn = std::move(fn)](auto&&... args) mutable {
      if (weak.lock()) fn(std::forward<decltype(args)>(args)...);
    };
  }

  // For code that calls out and must know afterwards whether it was destroyed meanwhile.
  std::weak_ptr<char> Watch() const { return token_; }

  // Callbacks wrapped so far become no-ops.
  void Renew() { token_ = std::make_shared<char>(); }

 private:
  std::shared_ptr<char> token_;
};

}  // namespace callboard::core
