// Rank 0's end with peers that the test plays itself, over TCP on this machine. Limits are short
// where something must happen; nothing here must happen within a time.
#include "ddp_runtime/comm/failure/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "ddp_runtime/comm/descriptor_limit.h"
#include "ddp_runtime/comm/errors.h"
#include "ddp_runtime/comm/failure/spoke.h"

namespace ddp::comm {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

ChannelOptions quick() {
  ChannelOptions options;
  options.liveness = {.heartbeat = 20ms, .silence = 200ms, .reconnect = 60ms, .exit = 1h};
  return options;
}

bool eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// What a cut link does to one connection: its kernel sees nothing any more of what the other sends,
// so that it acknowledges nothing either.
void cut(int fd) {
  sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog filter{1, &nothing};
  ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter), 0);
}

// Rank 0, with a port that others may come to.
struct Leader {
  explicit Leader(int ranks, ChannelOptions options = quick())
      : listener(listen_anywhere()),
        port(listener.port),
        hub(std::make_unique<Hub>(failures, activity, std::move(listener), "secret", ranks,
                                  std::move(options))) {}
  ~Leader() {
    // The destructor of a hub in a healthy world waits for goodbyes that the test has not said.
    failures.fail({.rank = 0, .text = "the test is over"});
  }

  Connection knock() const { return *Connection::open({"127.0.0.1"}, port, 10s); }
  Connection join(int rank, const std::string& node = "nodeX") const {
    Connection connection = knock();
    connection.send(
        {MessageKind::hello, rank, "secret " + node + ", process " + std::to_string(rank)});
    EXPECT_TRUE(connection.await(30s)) << "rank " << rank;
    connection.send({MessageKind::alive, 0, {}});
    return connection;
  }

  FailureState failures;
  ActivityLog activity;
  Listener listener;
  std::uint16_t port;
  std::unique_ptr<Hub> hub;
};

// The next message that is not a heartbeat or a question.
std::optional<Message> next_of(Connection& connection) {
  while (auto message = connection.await(30s)) {
    if (message->kind != MessageKind::alive && message->kind != MessageKind::question) {
      return message;
    }
  }
  return std::nullopt;
}

TEST(Hub, AStoppedRankIsNamedAndNobodyWaitsForItsGoodbye) {
  auto options = quick();
  options.liveness.silence = 2s;  // of which the other must not be
  options.liveness.reconnect = 1s;
  Leader leader(3, options);
  Connection stopped = leader.join(1, "node1");
  Connection well = leader.join(2, "node2");
  std::atomic<bool> over = false;
  std::thread heart([&] {
    while (!over && well.send({MessageKind::alive, 0, {}})) std::this_thread::sleep_for(5ms);
  });
  leader.failures.begin_stall();
  leader.failures.suspect("rank 0 waited 5 s in barrier #3 for rank 1");
  const auto verdict = leader.hub->verdict(30s);
  over = true;
  heart.join();
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->rank, 1);
  EXPECT_EQ(verdict->kind, FailureKind::stopped);
  EXPECT_THAT(
      verdict->text,
      AllOf(StartsWith("rank 1 (node1, process 1) has been silent for 2 s, but the machine "
                       "answers: it is stopped"),
            HasSubstr("; rank 0 waited 5 s in barrier #3 for rank 1"), Not(HasSubstr("node2"))));
  well.send({MessageKind::goodbye, 2, {}});
  EXPECT_FALSE(leader.hub->others_gone(1h)) << "rank 1 is still there, perhaps";
}

TEST(Hub, AMachineThatVanishedIsNamedWithAllItsRanks) {
  const auto dump = std::filesystem::path(testing::TempDir()) / "hub-dump.json";
  std::filesystem::remove(dump);
  auto options = quick();
  options.dump = dump;
  {
    Leader leader(3, options);
    std::vector<Connection> ranks;
    for (const int rank : {1, 2}) ranks.push_back(leader.join(rank, "node1"));
    for (const auto& rank : ranks) cut(rank.fd());
    std::this_thread::sleep_for(300ms);  // for heartbeats that nobody acknowledges
    leader.failures.begin_stall();
    const auto verdict = leader.hub->verdict(30s);
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->kind, FailureKind::unreachable);
    EXPECT_THAT(verdict->text, StartsWith("ranks 1 and 2 on node1 have been silent for 0.2 s, and "
                                          "the machine does not answer"));
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(dump); }));
    leader.hub.reset();
  }
  const auto record = nlohmann::json::parse(std::ifstream(dump));
  EXPECT_EQ(record.at("kind"), "unreachable");
  EXPECT_EQ(record.at("node"), "node1");
  ASSERT_EQ(record.at("lost").size(), 2U);
  EXPECT_EQ(record.at("lost")[1].at("rank"), 2);
  EXPECT_EQ(record.at("lost")[1].at("node"), "node1");
  EXPECT_EQ(record.at("lost")[1].at("kind"), "unreachable");
}

TEST(Hub, RanksThatDieTogetherAreToldTogether) {
  auto options = quick();
  options.liveness.silence = 1h;
  Leader leader(4, options);
  Connection one = leader.join(1, "node1");
  Connection two = leader.join(2, "node1");
  Connection three = leader.join(3, "node2");
  one.close();
  two.close();
  const auto told = next_of(three);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->kind, MessageKind::loss);
  EXPECT_THAT(told->text, StartsWith("ranks 1 and 2 on node1 ended without a word: they were"));
}

TEST(Hub, ARankMayConnectAgainWithTheTokenAndIsToldWhatItMissed) {
  auto options = quick();
  options.liveness.silence = 1h;
  Leader leader(3, options);
  Connection first = leader.join(1, "node1");
  Connection other = leader.join(2, "node2");
  cut(first.fd());
  // The port is closed while all ranks are well, and open again when one of them is silent.
  std::optional<Connection> again;
  ASSERT_TRUE(eventually([&] {
    auto connection = Connection::open({"127.0.0.1"}, leader.port, 1s);
    if (!connection) return false;
    connection->send({MessageKind::hello, 1, "secret node1, process 1"});
    if (!connection->await(1s)) return false;
    connection->send({MessageKind::alive, 0, {}});
    again = std::move(*connection);
    return true;
  }));
  first.close();
  other.send({MessageKind::failure, 2, "the disk is full"});
  const auto told = next_of(*again);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->kind, MessageKind::failure);
  EXPECT_EQ(told->text, "the disk is full");
}

TEST(Hub, OnlyTheProcessItselfMayConnectAgain) {
  Leader leader(3);
  Connection one = leader.join(1, "node1");
  Connection twin = leader.knock();
  twin.send({MessageKind::hello, 1, "secret node2, process 77"});
  // It may be welcomed before the hub has heard the first one again, but it is not taken in.
  if (twin.await(30s)) {
    twin.send({MessageKind::alive, 0, {}});
    EXPECT_FALSE(twin.await(30s));
  }
  for (const int rank : {0, -1, 3, 1000000}) {
    Connection impossible = leader.knock();
    impossible.send({MessageKind::hello, rank, "secret node2, process 77"});
    EXPECT_FALSE(impossible.await(30s)) << rank;
  }
  EXPECT_FALSE(leader.failures.failed());
}

TEST(Hub, SilentStrangersTakeNobodysPlace) {
  Leader leader(2);
  std::vector<Connection> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(leader.knock());
  Connection one = leader.join(1);
  for (auto& stranger : strangers) {
    EXPECT_FALSE(stranger.await(30s));
    EXPECT_EQ(stranger.state(), StreamState::ended);
  }
  EXPECT_TRUE(eventually([&] { return !Connection::open({"127.0.0.1"}, leader.port, 10s); }))
      << "all ranks are in: nobody else has business here";
  EXPECT_FALSE(leader.failures.failed());
}

TEST(Hub, ATextThatIsNoUtf8ReachesEverybodyAndTheRecord) {
  const auto dump = std::filesystem::path(testing::TempDir()) / "hub-utf8.json";
  std::filesystem::remove(dump);
  auto options = quick();
  options.dump = dump;
  {
    Leader leader(2, options);
    Connection one = leader.join(1);
    one.send({MessageKind::failure, 1, "cannot open /tmp/text\xff\xfe.txt"});
    const auto told = next_of(one);
    ASSERT_TRUE(told);
    EXPECT_EQ(told->text, "cannot open /tmp/text\xff\xfe.txt");
    leader.hub.reset();
  }
  EXPECT_THAT(nlohmann::json::parse(std::ifstream(dump)).at("text").get<std::string>(),
              HasSubstr("cannot open /tmp/text"));
}

TEST(Hub, AProcessThatDoesNotEndAfterAFailureIsEnded) {
  auto options = quick();
  options.liveness.exit = 50ms;
  std::atomic<bool> ended = false;
  options.end_process = [&] { ended = true; };
  Leader leader(2, options);
  leader.failures.fail({.rank = 0, .text = "no more coffee"});
  EXPECT_TRUE(eventually([&] { return ended.load(); }));
}

// The other end of a spoke, played by the test.
struct ListeningLeader {
  Connection accept() const {
    int fd = -1;
    eventually([&] {
      fd = ::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      return fd >= 0;
    });
    return Connection(FileDescriptor(fd));
  }
  Listener listener = listen_anywhere();
};

TEST(Spoke, ConnectsAgainWhenItsConnectionIsSilentAndTellsItsFailureThen) {
  ListeningLeader leader;
  auto outgoing = Connection::open({"127.0.0.1"}, leader.listener.port, 10s);
  ASSERT_TRUE(outgoing);
  Connection old = leader.accept();
  cut(old.fd());
  FailureState failures;
  ActivityLog activity;
  auto options = quick();
  options.liveness.silence = 1h;
  Spoke spoke(failures, activity, std::move(*outgoing), {1, "secret", "node1, process 9"}, options);
  failures.fail({.rank = 1, .text = "the disk is full"});  // told in vain

  Connection fresh = leader.accept();
  const auto hello = next_of(fresh);
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->kind, MessageKind::hello);
  EXPECT_EQ(hello->rank, 1);
  EXPECT_THAT(hello->text, StartsWith("secret "));
  fresh.send({MessageKind::welcome, 0, {}});
  const auto told = next_of(fresh);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->kind, MessageKind::failure);
  EXPECT_EQ(told->text, "the disk is full");
}

// A goodbye in place of the failure would leave the others waiting for a rank that is gone. Again
// and again, for the moment between the thread's last look and its end.
TEST(Spoke, ARankThatFailsAndLeavesAtOnceSaysWhy) {
  ListeningLeader leader;
  for (int i = 0; i < 300; ++i) {
    auto outgoing = Connection::open({"127.0.0.1"}, leader.listener.port, 10s);
    ASSERT_TRUE(outgoing);
    Connection connection = leader.accept();
    {
      FailureState failures;
      ActivityLog activity;
      Spoke spoke(failures, activity, std::move(*outgoing), {1, "secret", "node1, process 9"});
      std::this_thread::sleep_for(std::chrono::microseconds(i));
      failures.fail({.rank = 1, .text = "the disk is full"});
    }
    const auto told = next_of(connection);
    ASSERT_TRUE(told);
    ASSERT_EQ(told->kind, MessageKind::failure) << "round " << i;
  }
}

// Likewise for rank 0, whose end without a word would be told instead.
TEST(Hub, ALeaderThatFailsAndLeavesAtOnceSaysWhy) {
  for (int i = 0; i < 100; ++i) {
    std::optional<Connection> one;
    {
      Leader leader(2);
      one = leader.join(1);
      ASSERT_TRUE(one->await(30s)) << "a heartbeat: it has been taken in";
    }
    const auto told = next_of(*one);
    ASSERT_TRUE(told) << "round " << i;
    ASSERT_EQ(told->text, "the test is over");
  }
}

TEST(Spoke, NamesRankZeroWhenItIsSilentAndTheDataPathStalls) {
  ListeningLeader leader;
  auto outgoing = Connection::open({"127.0.0.1"}, leader.listener.port, 10s);
  ASSERT_TRUE(outgoing);
  Connection mute = leader.accept();
  FailureState failures;
  ActivityLog activity;
  Spoke spoke(failures, activity, std::move(*outgoing), {1, "secret", "node1, process 9"}, quick());
  std::this_thread::sleep_for(600ms);
  EXPECT_FALSE(failures.failed()) << "nobody waits";
  failures.begin_stall();
  ASSERT_TRUE(eventually([&] { return failures.failed(); }));
  EXPECT_EQ(failures.failure()->rank, 0);
  EXPECT_THAT(failures.failure()->text, HasSubstr("node1, process 9) has been silent"));
}

TEST(Connection, OnlyWhatThePeersMachineSaidProvesItsDeath) {
  for (const int error : {ECONNRESET, EPIPE}) EXPECT_EQ(state_after(error), StreamState::ended);
  for (const int error : {ETIMEDOUT, EHOSTUNREACH, ENETUNREACH, ENETDOWN, EHOSTDOWN}) {
    EXPECT_EQ(state_after(error), StreamState::broken) << error;
  }
}

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// All other ranks of a large job, as a process of their own: connect at once, wait for the welcome,
// then for a failure. Returns how many heard of it.
int play_ranks(int ranks, std::uint16_t port) {
  std::vector<Connection> connections;
  for (int rank = 1; rank < ranks; ++rank) {
    auto connection = Connection::open({"127.0.0.1"}, port, 60s);
    if (!connection) return 0;
    connection->send({MessageKind::hello, rank, "secret node" + std::to_string(rank / 8)});
    connections.push_back(std::move(*connection));
  }
  for (auto& connection : connections) {
    if (!connection.await(60s)) return 0;
    connection.send({MessageKind::alive, 0, {}});
  }
  connections.back().send({MessageKind::failure, ranks - 1, "the disk is full"});
  int told = 0;
  for (auto& connection : connections) {
    const auto message = next_of(connection);
    told += message && message->kind == MessageKind::failure ? 1 : 0;
  }
  return told;
}

// SLURM_DDP_HUB_RANKS=4000 makes it a benchmark: it reports what rank 0's part costs.
TEST(Hub, WelcomesManyRanksAndTellsThemAll) {
  raise_descriptor_limit();
  const char* wanted = std::getenv("SLURM_DDP_HUB_RANKS");
  const int ranks = wanted != nullptr ? std::atoi(wanted) : 300;
  Listener listener = listen_anywhere();
  const std::uint16_t port = listener.port;
  int answer[2];
  ASSERT_EQ(pipe(answer), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    listener.socket.close();
    const int told = play_ranks(ranks, port);
    [[maybe_unused]] const auto n = write(answer[1], &told, sizeof told);
    _exit(0);
  }
  FailureState failures;
  ActivityLog activity;
  auto options = ChannelOptions{};
  options.liveness = scaled({}, ranks);
  const double before = processor_seconds();
  const auto start = std::chrono::steady_clock::now();
  Hub hub(failures, activity, std::move(listener), "secret", ranks, options);
  int told = 0;
  ASSERT_EQ(read(answer[0], &told, sizeof told), static_cast<ssize_t>(sizeof told));
  waitpid(child, nullptr, 0);
  EXPECT_EQ(told, ranks - 1);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  RecordProperty("processor_seconds", std::to_string(processor_seconds() - before));
  if (wanted != nullptr) {
    printf(
        "%d ranks welcomed and told of a failure in %.2f s; rank 0's part: %.2f s of processor "
        "time\n",
        ranks, wall.count(), processor_seconds() - before);
  }
  close(answer[0]);
  close(answer[1]);
}

}  // namespace
}  // namespace ddp::comm
