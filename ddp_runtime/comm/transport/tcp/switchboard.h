// SPDX-License-Identifier: Apache-2.0
// The port at which the other ranks connect to this one. A thread accepts their connections
// (failure/reception.h) at any time, also while this rank computes, and keeps each for the one that
// it is meant for: a transport, or the rendezvous.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/channel/connection.h"
#include "base/channel/event_queue.h"
#include "base/channel/reception.h"
#include "base/channel/running_clock.h"
#include "base/deadline.h"
#include "base/secret/key.h"
#include "base/wake_event.h"

namespace ddp::comm {

// What a rank says that connects: whom it wants, and a remark for the receiver. The number of the
// rank that it calls is part of it, so that it does not take another rank at that address for it.
struct Call {
  std::string receiver;  // without spaces
  int callee = 0;
  std::string remark;
};
std::string text_of(const Call& call);
std::optional<Call> call_of(const std::string& text);

// A rank's connection, which both ends have authenticated.
struct Caller {
  int rank = 0;  // in the job
  std::string remark;
  Connection connection;
};

// Connections for one receiver, at most one of each rank. Thread-safe.
class Mailbox {
 public:
  // Whether none of this rank has come yet.
  bool admits(int rank);
  // After this one has gone, it may come again.
  void forget(int rank);
  void put(Caller caller);
  bool empty() const noexcept { return !has_mail_.load(std::memory_order_acquire); }
  std::vector<Caller> take();
  // Waits until there is one.
  std::vector<Caller> take_before(Deadline deadline);

 private:
  std::atomic<bool> has_mail_ = false;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::set<int> came_;
  std::vector<Caller> callers_;
};

class Switchboard {
 public:
  // Only the ranks know `key`.
  Switchboard(Listener listener, const Key& key, int rank, int ranks);
  Switchboard(const Switchboard&) = delete;
  Switchboard& operator=(const Switchboard&) = delete;
  ~Switchboard();

  std::uint16_t port() const noexcept { return port_; }
  // The mailbox of the receiver that callers ask for by this name, which has no spaces. They may
  // have asked for it already. Thread-safe.
  std::shared_ptr<Mailbox> mailbox(const std::string& receiver);
  // Connections that ended while the two ends proved that they have the key. Thread-safe.
  struct Unproved {
    int times = 0;
    std::string last;  // its address
  };
  Unproved unproved();
  // Whether a connection waits for which this process has no file descriptor.
  bool out_of_descriptors() const noexcept { return out_of_descriptors_; }

 private:
  bool may_join(int rank, const std::string& who);
  void count_unproved(const Connection& stranger);
  void join(Reception::Arrival arrival);
  void serve() noexcept;

  const std::uint16_t port_;
  const int rank_;
  const int ranks_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Mailbox>> mailboxes_;  // guarded by the mutex
  Unproved unproved_;                                          // guarded by the mutex
  std::atomic<bool> out_of_descriptors_ = false;
  std::atomic<bool> leaving_ = false;
  WakeEvent wake_event_;
  // Used only by the thread:
  RunningClock clock_;
  EventQueue events_;
  Reception reception_;

  std::thread thread_;
};

}  // namespace ddp::comm
