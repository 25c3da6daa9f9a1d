// SPDX-License-Identifier: Apache-2.0
// Channels between neighbors: no schedule may wait forever, even if each send waits for its
// receive.
#include "ddp_runtime/pipeline/edges.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/unit/pipeline/schedule_cases.h"

namespace ddp::pipeline::test {
namespace {

using testing::ElementsAre;
using enum OperationKind;

struct Message {
  bool is_send;
  int peer;
  Flow flow;
  int stage;  // from which it comes
  int micro_batch;

  bool matches(const Message& other) const {
    return is_send != other.is_send && flow == other.flow && stage == other.stage &&
           micro_batch == other.micro_batch;
  }
};

// The messages of a rank before and after an operation.
struct Messages {
  std::optional<Message> before;
  std::optional<Message> after;
};

Messages messages_of(const Operation& operation, const Layout& layout) {
  const int s = operation.stage;
  const int p = layout.ranks;
  const bool is_first = s == 0;
  const bool is_last = s == layout.stages() - 1;
  const auto peer = [&](int stage) { return rank_of_stage(stage, p); };
  Messages messages;
  if (p == 1) return messages;
  if (operation.kind == forward) {
    if (!is_first)
      messages.before = {false, peer(s - 1), Flow::forward, s - 1, operation.micro_batch};
    if (!is_last) messages.after = {true, peer(s + 1), Flow::forward, s, operation.micro_batch};
  } else if (operation.goes_back()) {
    if (!is_last)
      messages.before = {false, peer(s + 1), Flow::backward, s + 1, operation.micro_batch};
    if (!is_first) messages.after = {true, peer(s - 1), Flow::backward, s, operation.micro_batch};
  }
  return messages;
}

// Executes the tables of all ranks. A rank gives messages to queues, waits for what it receives,
// and continues. A queue's first message is over when the peer's queue has the matching one first.
class BlockingSends {
 public:
  using QueueOf = std::string (*)(const Message& message, int rank, const Layout& layout);

  BlockingSends(const std::vector<std::vector<Operation>>& tables, const Layout& layout,
                QueueOf queue_of)
      : tables_(tables), layout_(layout), queue_of_(queue_of), ranks_(tables.size()) {}

  // Returns whether all ranks have come to their ends.
  bool run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) moved |= advance(rank);
      moved |= transfer();
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].next < tables_[rank].size() || !queues_are_empty(rank)) return false;
    }
    return true;
  }

 private:
  struct Rank {
    std::size_t next = 0;
    bool posted = false;  // the receive before the next operation
    std::set<std::tuple<Flow, int, int>> received;
    std::map<std::string, std::deque<Message>> queues;
  };

  void post(std::size_t rank, const Message& message) {
    ranks_[rank].queues[queue_of_(message, static_cast<int>(rank), layout_)].push_back(message);
  }

  bool advance(std::size_t number) {
    auto& rank = ranks_[number];
    if (rank.next == tables_[number].size()) return false;
    const auto messages = messages_of(tables_[number][rank.next], layout_);
    if (messages.before) {
      const auto& wanted = *messages.before;
      if (!std::exchange(rank.posted, true)) post(number, wanted);
      if (!rank.received.contains({wanted.flow, wanted.stage, wanted.micro_batch})) return false;
    }
    if (messages.after) post(number, *messages.after);
    rank.posted = false;
    ++rank.next;
    return true;
  }

  bool transfer() {
    for (auto& sender : ranks_) {
      for (auto& [name, queue] : sender.queues) {
        if (queue.empty() || !queue.front().is_send) continue;
        auto& receiver = ranks_[static_cast<std::size_t>(queue.front().peer)];
        for (auto& [other_name, other] : receiver.queues) {
          if (other.empty() || !queue.front().matches(other.front())) continue;
          const auto& message = other.front();
          receiver.received.insert({message.flow, message.stage, message.micro_batch});
          other.pop_front();
          queue.pop_front();
          return true;
        }
      }
    }
    return false;
  }

  bool queues_are_empty(std::size_t rank) const {
    for (const auto& [name, queue] : ranks_[rank].queues) {
      if (!queue.empty()) return false;
    }
    return true;
  }

  const std::vector<std::vector<Operation>>& tables_;
  Layout layout_;
  QueueOf queue_of_;
  std::vector<Rank> ranks_;
};

// The channel that has this message: the one whose pair of this rank has the two ends.
std::string channel_of(const Message& message, int rank, const Layout& layout) {
  const std::pair ends =
      message.is_send ? std::pair(rank, message.peer) : std::pair(message.peer, rank);
  for (const auto& channel : channels_of(layout.ranks, layout.stages_per_rank > 1)) {
    const int pair = pair_of(channel, rank);
    if (pair < 0 || channel.flow != message.flow) continue;
    const auto& found = channel.pairs[static_cast<std::size_t>(pair)];
    if (std::pair(found.from, found.to) == ends) {
      return fmt::format("{} {}", static_cast<int>(channel.flow), channel.color);
    }
  }
  ADD_FAILURE() << "no channel from rank " << ends.first << " to rank " << ends.second;
  return "none";
}

std::string one_queue(const Message& /*message*/, int /*rank*/, const Layout& /*layout*/) {
  return "all";
}

TEST(Channels, LetAllSchedulesEnd) {
  for (const auto& one : all_cases()) {
    const auto tables = tables_of(one);
    EXPECT_TRUE(BlockingSends(tables, one.layout, channel_of).run()) << one.text();
  }
}

TEST(Channels, LetAllEvaluationsEnd) {
  for (int p = 1; p <= kMaxRanks; ++p) {
    for (int m = 1; m <= kMaxMicroBatches; ++m) {
      for (int v = 1; v <= kMaxStagesPerRank; ++v) {
        const Layout layout{p, m, v};
        std::vector<std::vector<Operation>> tables;
        for (int rank = 0; rank < p; ++rank) tables.push_back(forward_operations(layout, rank));
        EXPECT_TRUE(BlockingSends(tables, layout, channel_of).run()) << p << " " << m << " " << v;
      }
    }
  }
}

TEST(Channels, AreNeededBecauseOneQueueWaitsForever) {
  const ScheduleCase one{Schedule::one_f_one_b, {2, 4}};
  const auto tables = tables_of(one);
  EXPECT_FALSE(BlockingSends(tables, one.layout, one_queue).run());
}

// What each rank sends to and receives from its neighbors, per channel.
TEST(Channels, HaveTheSameOrderOnBothEnds) {
  for (const auto& one : all_cases()) {
    using Sequence = std::vector<std::pair<int, int>>;
    std::map<std::string, Sequence> sent;
    std::map<std::string, Sequence> received;
    const auto tables = tables_of(one);
    for (int rank = 0; rank < one.layout.ranks; ++rank) {
      const auto add = [&](const std::optional<Message>& message) {
        if (!message) return;
        const int from = message->is_send ? rank : message->peer;
        const auto where = fmt::format("{} from {}", channel_of(*message, rank, one.layout), from);
        (message->is_send ? sent : received)[where].emplace_back(message->stage,
                                                                 message->micro_batch);
      };
      for (const auto& operation : tables[static_cast<std::size_t>(rank)]) {
        const auto messages = messages_of(operation, one.layout);
        add(messages.before);
        add(messages.after);
      }
    }
    EXPECT_EQ(sent, received) << one.text();
  }
}

TEST(Channels, HaveEachRankOnceAndEachEdgeInBothDirections) {
  for (int p = 1; p <= 9; ++p) {
    for (const bool ring : {false, true}) {
      std::map<int, int> uses;  // of edges
      for (const auto& channel : channels_of(p, ring)) {
        std::set<int> ranks;
        for (const auto& pair : channel.pairs) {
          EXPECT_TRUE(ranks.insert(pair.from).second) << p << " ranks, color " << channel.color;
          EXPECT_TRUE(ranks.insert(pair.to).second) << p << " ranks, color " << channel.color;
          EXPECT_EQ(pair_of(channel, pair.to), pair_of(channel, pair.from));
          ++uses[pair.edge];
        }
      }
      EXPECT_EQ(static_cast<int>(uses.size()), p < 2 ? 0 : ring ? p : p - 1);
      for (const auto& [edge, count] : uses) EXPECT_EQ(count, 2) << edge;
    }
  }
}

TEST(Channels, OfAnOddRingHaveThreeColors) {
  const auto channels = channels_of(3, true);
  ASSERT_EQ(channels.size(), 6U);
  EXPECT_THAT(channels[2].pairs, ElementsAre(Pair{2, 2, 0}));
  EXPECT_THAT(channels[3].pairs, ElementsAre(Pair{0, 1, 0}));
  EXPECT_EQ(pair_of(channels[0], 2), -1);
  EXPECT_EQ(channels_of(4, true).size(), 4U);
  EXPECT_EQ(channels_of(2, false).size(), 2U);
}

}  // namespace
}  // namespace ddp::pipeline::test
