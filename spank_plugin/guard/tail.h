// SPDX-License-Identifier: Apache-2.0
// The last bytes of a stream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace ddp::guard {

class Tail {
 public:
  explicit Tail(std::size_t limit) : limit_(limit) {}

  void add(std::string_view bytes) {
    if (bytes.size() >= limit_) {
      text_.assign(bytes.substr(bytes.size() - limit_));
      return;
    }
    // Twice the limit before anything is moved: a byte is moved once, however small the pieces are.
    if (text_.size() + bytes.size() > 2 * limit_) text_.erase(0, text_.size() - limit_);
    text_.append(bytes);
  }

  std::string_view view() const noexcept {
    const std::string_view all = text_;
    return all.substr(all.size() - std::min(all.size(), limit_));
  }

 private:
  std::size_t limit_;
  std::string text_;
};

}  // namespace ddp::guard
