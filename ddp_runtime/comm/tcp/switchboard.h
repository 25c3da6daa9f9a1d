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
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/wake_event.h"
#include "ddp_runtime/comm/failure/connection.h"
#include "ddp_runtime/comm/failure/event_queue.h"
#include "ddp_runtime/comm/failure/reception.h"
#include "ddp_runtime/comm/running_clock.h"
#include "ddp_runtime/comm/secret/key.h"

namespace ddp::comm {

// A rank's connection, which both ends have authenticated.
struct Caller {
  int rank = 0;        // in the job
  std::string remark;  // what it said besides whom it wants
  Connection connection;
};

// Connections for one receiver, at most one of each rank. Thread-safe.
class Mailbox {
 public:
  // Whether none of this rank has come yet.
  bool admits(int rank);
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
  Switchboard(Listener listener, const Key& key, int ranks);
  Switchboard(const Switchboard&) = delete;
  Switchboard& operator=(const Switchboard&) = delete;
  ~Switchboard();

  std::uint16_t port() const noexcept { return port_; }
  // The mailbox of the receiver that callers ask for by this name, which has no spaces. They may
  // have asked for it already. Thread-safe.
  std::shared_ptr<Mailbox> mailbox(const std::string& receiver);

 private:
  bool may_join(int rank, const std::string& who);
  void join(Reception::Arrival arrival);
  void serve() noexcept;

  const std::uint16_t port_;
  const int ranks_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Mailbox>> mailboxes_;  // guarded by the mutex
  std::atomic<bool> leaving_ = false;
  WakeEvent wake_event_;
  // Used only by the thread:
  RunningClock clock_;
  EventQueue events_;
  Reception reception_;

  std::thread thread_;
};

}  // namespace ddp::comm
