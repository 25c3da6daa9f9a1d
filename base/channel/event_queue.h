// SPDX-License-Identifier: Apache-2.0
// Reports which of many file descriptors are ready, with epoll(7): a wait costs the same for ten
// descriptors as for ten thousand.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <span>

#include "base/errors.h"
#include "base/file_descriptor.h"

namespace ddp {

class EventQueue {
 public:
  EventQueue() : fd_(epoll_create1(EPOLL_CLOEXEC)) {
    if (!fd_) throw RuntimeError("cannot create an epoll queue for a channel");
  }

  // Events of `fd` carry `key`. Closing a descriptor removes it.
  void watch(int fd, std::uint64_t key) noexcept { control(EPOLL_CTL_ADD, fd, key, EPOLLIN); }
  // For a descriptor that lives on.
  void forget(int fd) noexcept { control(EPOLL_CTL_DEL, fd, 0, 0); }
  void change(int fd, std::uint64_t key, bool for_writing) noexcept {
    control(EPOLL_CTL_MOD, fd, key, EPOLLIN | (for_writing ? EPOLLOUT : 0U));
  }
  // Waits for events; the returned span is valid until the next call.
  std::span<const epoll_event> wait(int milliseconds) noexcept {
    const int count =
        epoll_wait(fd_.get(), events_.data(), static_cast<int>(events_.size()), milliseconds);
    return {events_.data(), count > 0 ? static_cast<std::size_t>(count) : 0};
  }

 private:
  void control(int operation, int fd, std::uint64_t key, std::uint32_t events) const noexcept {
    epoll_event event{};
    event.events = events;
    event.data.u64 = key;
    epoll_ctl(fd_.get(), operation, fd, &event);
  }

  FileDescriptor fd_;
  std::array<epoll_event, 256> events_{};
};

}  // namespace ddp
