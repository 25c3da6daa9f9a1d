// SPDX-License-Identifier: Apache-2.0
// A NodeLink by authenticated connections over TCP (base/channel). All of it happens on a thread.
// Where the hub cannot be reached, the thread tries again and again, and nothing else happens.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/channel/connection.h"
#include "base/channel/wire.h"
#include "base/deadline.h"
#include "base/secret/key.h"
#include "base/wake_event.h"
#include "spank_plugin/guard/node_hub.h"
#include "spank_plugin/guard/node_link.h"

namespace ddp::guard {

class TcpNodeLink final : public NodeLink {
 public:
  // Throws std::exception if the system has no thread or file left. `step_key`: that of the
  // options.
  TcpNodeLink(LinkOptions options, const Key& step_key);
  ~TcpNodeLink() override;

  bool is_hub() const noexcept override { return options_.node == 0; }
  void finish(const watch::RanksReport& ranks, LastWords kind) override;
  watch::RanksReport others(Clock::time_point now) const override;
  void ask() override;
  void end_step(const StepEnd& end) override;
  std::optional<StepEnd> step_end() const override;
  bool is_step_end_told() const override;
  void publish(const watch::RanksReport& ranks) override;
  bool is_connected() const noexcept override;
  bool was_asked() noexcept override { return was_asked_.exchange(false); }

 private:
  void run() noexcept;
  void serve();
  bool report();  // false if there is no hub
  void tell_the_rest(NodeHub& hub);
  void say_goodbye();
  std::optional<Connection> find_hub(Deadline deadline) const;
  void talk(Connection& connection);
  void hear(Connection& connection);
  void send_end(Connection& connection);
  void send_published(Connection& connection);
  void wait(std::chrono::milliseconds most) const;

  LinkOptions options_;
  Key key_;               // the channel's
  WakeEvent wake_event_;  // notified when there is something to send, or to end
  std::atomic<bool> is_leaving_{false};
  std::atomic<bool> is_over_{false};    // see finish()
  std::atomic<bool> is_urgent_{false};  // the same
  std::atomic<bool> was_asked_{false};
  std::atomic<int> number_{0};                                 // the hub's last one, see node_hub.h
  std::atomic<Clock::time_point> heard_{Clock::time_point()};  // from the hub
  mutable std::mutex mutex_;
  // Guarded by the mutex:
  std::optional<Message> published_;  // and not sent
  std::optional<StepEnd> end_;
  bool is_end_told_ = false;  // to the hub, or by it
  std::unique_ptr<NodeHub> hub_;
  std::thread thread_;
};

// A MakeLink.
std::unique_ptr<NodeLink> make_tcp_link(const LinkOptions& options);

}  // namespace ddp::guard
