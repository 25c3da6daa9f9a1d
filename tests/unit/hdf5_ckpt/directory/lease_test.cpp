// SPDX-License-Identifier: Apache-2.0
// Tests the lease of a directory: its rule as a table, and several owners in one directory.

#include "hdf5_ckpt/directory/lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "tests/unit/hdf5_ckpt/support.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using test::Names;
using test::names_in;
using test::TempDirectory;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Long enough that a live owner does not appear silent on a busy machine. Silent owners in these
// tests stay silent.
const LeaseTimes kQuick = {milliseconds(10), milliseconds(300)};
const LeaseTimes kNeverSilent = {milliseconds(10), std::chrono::hours(1)};

OwnerTag tag(const std::string& job, unsigned restart = 0) {
  return OwnerTag::of_this_process(job, restart);
}

std::unique_ptr<Lease> hold(const fs::path& root, const OwnerTag& owner,
                            const LeaseTimes& times = kQuick) {
  LeaseClaim claim(root, owner, times);
  while (true)
    if (auto lease = claim.advance(milliseconds(50))) return lease;
}

// Creates the lease of a process that never increases its count again.
LeaseHolder leave_lease(const fs::path& root, const OwnerTag& owner, const std::string& machine) {
  LeaseHolder holder = LeaseHolder::of_this_process(owner);
  holder.machine = machine;
  std::ofstream(root / ".owner") << holder.text();
  return holder;
}

struct LeaseCase {
  const char* what;
  LeaseHolder other;
  bool lives;
  LeaseVerdict expected;
};

TEST(LeaseRule, FollowsTheTable) {
  const LeaseHolder mine{{"17", 1, "node1", 100}, "t1", "boot-1", 5, 0};
  const auto other = [&](const std::string& job, unsigned restart, const std::string& machine) {
    return LeaseHolder{{job, restart, "node2", 100}, "t2", machine, 5, 0};
  };
  const std::vector<LeaseCase> cases = {
      {"earlier restart, far away", other("17", 0, "boot-2"), true, LeaseVerdict::take_over},
      {"earlier restart, alive here", other("17", 0, "boot-1"), true, LeaseVerdict::take_over},
      {"later restart", other("17", 2, "boot-2"), false, LeaseVerdict::refuse},
      {"another step of the job, here", other("17", 1, "boot-1"), true, LeaseVerdict::refuse},
      {"the same job, dead, here", other("17", 1, "boot-1"), false, LeaseVerdict::take_over},
      {"the same job, elsewhere", other("17", 1, "boot-2"), false, LeaseVerdict::watch},
      {"another job, alive here", other("18", 0, "boot-1"), true, LeaseVerdict::refuse},
      {"another job, dead here", other("18", 0, "boot-1"), false, LeaseVerdict::take_over},
      {"another job elsewhere", other("18", 0, "boot-2"), false, LeaseVerdict::watch},
      {"this machine before its last boot", other("18", 0, "boot-0"), true, LeaseVerdict::watch},
  };
  for (const LeaseCase& c : cases)
    EXPECT_EQ(judge_lease(mine, c.other, [&](const LeaseHolder&) { return c.lives; }), c.expected)
        << c.what;
}

TEST(LeaseText, RoundTripsWithConstantLength) {
  LeaseHolder holder{{"17", 3, "node1", 4242}, "token", "boot pid:[1]", 77, 0};
  const std::size_t length = holder.text().size();
  for (const std::uint64_t beat : {0ULL, 1ULL, 123456789012ULL}) {
    holder.beat = beat;
    EXPECT_EQ(LeaseHolder::parse(holder.text()), holder);
    EXPECT_EQ(holder.text().size(), length);
  }
  for (const char* text : {"", "x", "{}", "[1]", "{\"owner\": \"x\"}"})
    EXPECT_EQ(LeaseHolder::parse(text), std::nullopt) << text;
}

TEST(Lease, IsRemovedWhenItEnds) {
  const TempDirectory root;
  {
    const auto lease = hold(root, tag("a"));
    lease->require();
    EXPECT_EQ(names_in(root), (Names{".owner"}));
  }
  EXPECT_THAT(names_in(root), IsEmpty());
}

TEST(Lease, LiveOwnerIsRespected) {
  const TempDirectory root;
  const auto lease = hold(root, tag("a"));
  const std::string error = error_of([&] { hold(root, tag("b")); });
  EXPECT_THAT(error, HasSubstr("is in use: job a (restart 0) on"));
  EXPECT_THAT(error, HasSubstr("choose another checkpoint directory"));
  lease->require();
}

TEST(Lease, KilledOwnerIsReplacedImmediately) {
  const TempDirectory root;
  const pid_t child = ::fork();
  if (child == 0) {
    auto lease = hold(root, tag("a"));
    static_cast<void>(lease.release());
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(names_in(root), (Names{".owner"}));
  LeaseClaim claim(root, tag("b"), kNeverSilent);
  const auto lease = claim.advance(milliseconds(0));
  ASSERT_NE(lease, nullptr);
  EXPECT_EQ(claim.other()->owner.job, "a");
  EXPECT_EQ(names_in(root), (Names{".owner"}));
}

TEST(Lease, EarlierRestartIsReplacedAndFenced) {
  const TempDirectory root;
  const auto before = hold(root, tag("17", 0));
  const auto now = hold(root, tag("17", 1));
  EXPECT_THAT(error_of([&] { before->require(); }),
              HasSubstr("was taken over by job 17 (restart 1) on"));
  now->require();
  EXPECT_THAT(error_of([&] { hold(root, tag("17", 0)); }), HasSubstr("is in use"));
}

TEST(Lease, DeletedDirectoryOrFileIsNotATakeover) {
  const TempDirectory root;
  for (const bool with_directory : {false, true}) {
    const fs::path directory = root / "ck";
    fs::create_directories(directory);
    const auto lease = hold(directory, tag("17", 0));
    fs::remove_all(with_directory ? directory : directory / ".owner");
    const auto error = error_of([&] { lease->require(); });
    EXPECT_THAT(error, HasSubstr((directory / ".owner").string() + "' has vanished"));
    EXPECT_THAT(error, Not(HasSubstr("taken over")));
  }
}

TEST(Lease, FencedOwnerRemovesNothingWhenItEnds) {
  const TempDirectory root;
  auto before = hold(root, tag("17", 0));
  const auto now = hold(root, tag("17", 1));
  before.reset();
  now->require();
}

TEST(Lease, SilentRemoteOwnerIsReplacedAfterTheTimeout) {
  const TempDirectory root;
  leave_lease(root, tag("a"), "another machine");
  LeaseClaim patient(root, tag("b"), kNeverSilent);
  EXPECT_EQ(patient.advance(milliseconds(0)), nullptr);
  EXPECT_EQ(patient.other()->owner.job, "a");
  EXPECT_NE(hold(root, tag("b")), nullptr);
}

TEST(Lease, RemoteOwnerWhoseCountIncreasesIsRespected) {
  const TempDirectory root;
  LeaseHolder holder = leave_lease(root, tag("a"), "another machine");
  LeaseClaim claim(root, tag("b"), kNeverSilent);
  EXPECT_EQ(claim.advance(milliseconds(0)), nullptr);
  ++holder.beat;
  std::ofstream(root / ".owner") << holder.text();
  EXPECT_THAT(error_of([&] { claim.advance(milliseconds(0)); }), HasSubstr("is in use: job a"));
}

TEST(Lease, CountsWhileItIsHeld) {
  const TempDirectory root;
  const auto lease = hold(root, tag("a"));
  const auto beat = [&] {
    std::string text;
    std::getline(std::ifstream(root / ".owner"), text);
    return LeaseHolder::parse(text)->beat;
  };
  const std::uint64_t first = beat();
  while (beat() == first) std::this_thread::sleep_for(milliseconds(5));
}

TEST(Lease, UnreadableTextIsWatchedToo) {
  // A full disk or a power failure can leave an empty lease file.
  for (const char* text : {"who?", "", "\n"}) {
    const TempDirectory root;
    std::ofstream(root / ".owner") << text;
    LeaseClaim patient(root, tag("b"), kNeverSilent);
    EXPECT_EQ(patient.advance(milliseconds(0)), nullptr);
    LeaseClaim claim(root, tag("b"), kQuick);
    EXPECT_NE(claim.advance(std::chrono::seconds(60)), nullptr) << "'" << text << "'";
  }
}

TEST(Lease, FullDiskIsAnErrorAndLeavesNothing) {
  const TempDirectory root;
  rlimit before = {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit little = before;
  little.rlim_cur = 10;  // bytes in a file: only part of the text is written, as on a full disk
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &little);
  const std::string error = error_of([&] { LeaseClaim(root, tag("a")).advance(milliseconds(0)); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, HasSubstr("cannot write the lease of the directory,"));
  EXPECT_THAT(names_in(root), IsEmpty());
  EXPECT_NE(hold(root, tag("a")), nullptr);
}

TEST(Lease, OneOfManyConcurrentClaimsSucceeds) {
  const TempDirectory root;
  leave_lease(root, tag("17", 0), "another machine");
  std::atomic<int> have = 0;
  std::atomic<int> refused = 0;
  std::vector<std::unique_ptr<Lease>> leases(8);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < leases.size(); ++i)
      threads.emplace_back([&, i] {
        OwnerTag owner = tag("18");
        // Distinct process ids give distinct file names, like those of separate processes.
        owner.pid += static_cast<pid_t>(i);
        try {
          leases[i] = hold(root, owner);
          ++have;
        } catch (const LeaseError&) {
          ++refused;
        }
      });
  }
  // A lease that another claim has taken over is fenced, so exactly one remains valid.
  int good = 0;
  for (const auto& lease : leases) {
    try {
      if (lease) lease->require(), ++good;
    } catch (const LeaseError&) {
    }
  }
  EXPECT_EQ(good, 1);
  EXPECT_EQ(have + refused, 8);
}

}  // namespace
}  // namespace ddp::ckpt
