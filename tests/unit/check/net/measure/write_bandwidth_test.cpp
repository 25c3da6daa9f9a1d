// SPDX-License-Identifier: Apache-2.0
// Tests RDMA measurements with a fake ib_write_bw, a script in this directory. None of these tests
// uses a real RDMA device.
#include "ddp_runtime/check/net/measure/write_bandwidth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <string>

#include "tests/unit/temporary_directory.h"

namespace ddp::check {
namespace {

using testing::HasSubstr;

const std::string kFake = std::string(SLURM_DDP_SOURCE_DIR) + "/tests/unit/check/fake_ib_write_bw";

TEST(WriteBandwidth, ReadsTheAverageInBothUnits) {
  EXPECT_EQ(parse_write_bandwidth(" #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] Msg\n"
                                  " 65536 5000 97.6 96.0 0.18\n"),
            12e9);
  EXPECT_EQ(parse_write_bandwidth(" #bytes #iterations BW peak[MB/sec] BW average[MB/sec] Msg\n"
                                  " 65536 5000 97.6 100 0.18\n"),
            104857600.0);
}

TEST(WriteBandwidth, InvalidSpeedsAreRejected) {
  const std::string header = " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] Msg\n";
  for (const std::string& output :
       {std::string(), header, header + "65536 5000 97.6\n", header + "65536 5000 0.00 0.00 0\n",
        header + "65536 5000 inf nan 0\n", header + "65536 5000 1 -3 0\n",
        std::string("65536 5000 97.6 96.0 0.18\n"),  // unit unknown
        std::string(" #bytes BW average[furlongs]\n 65536 5000 97.6 96.0 0.18\n")}) {
    EXPECT_EQ(parse_write_bandwidth(output), std::nullopt) << output;
  }
}

TEST(WriteBandwidth, NamesDevicePortAndAddressTable) {
  const auto command =
      write_bandwidth_command("tool", {{"mlx5_1:2", "", {}}, 3}, 20000, 1 << 20, "n2");
  EXPECT_EQ(command, (std::vector<std::string>{"tool", "-d", "mlx5_1", "-F", "--report_gbits", "-i",
                                               "2", "-x", "3", "-p", "20000", "-s", "1048576", "-n",
                                               "100", "n2"}));
}

// Runs both ends of an exchange in one process.
class FakeExchange : public testing::Test {
 protected:
  FakeExchange() { setenv("FAKE_RDMA", directory_.c_str(), 1); }

  static std::string end(bool first, std::chrono::milliseconds timeout,
                         const std::string& program = kFake, const std::string& rail = "fake_0:1") {
    ExchangeCommand command;
    command.rail = rail;
    command.first = first;
    command.host = "n2";
    command.bytes = 1 << 20;
    try {
      const RdmaTool tool{program, {{{"fake_0:1", "", {}}}, {{"fake_1:1", "", {}}}}};
      const auto result = exchange_by_rdma(tool, command, Clock::now() + timeout);
      return std::to_string(result.sent_per_second / 1e9) + " through " + result.via;
    } catch (const NetError& error) {
      return error.what();
    }
  }

  test::TemporaryDirectory temporary_;
  std::string directory_ = temporary_.path().string();
};

TEST_F(FakeExchange, MeasuresBothDirections) {
  setenv("FAKE_RDMA_GBITS", "96", 1);
  const std::chrono::seconds timeout(30);
  auto other = std::async(std::launch::async, [&] { return end(false, timeout); });
  EXPECT_EQ(end(true, timeout), "12.000000 through fake_0:1");
  EXPECT_EQ(other.get(), "12.000000 through fake_0:1");
}

TEST_F(FakeExchange, OnlyOwnPortsAreUsed) {
  EXPECT_EQ(end(true, std::chrono::seconds(120), kFake, "mlx5_9:1"),
            "the leader requested the RDMA port 'mlx5_9:1', which this node lacks");
}

// A repeated test finds no other end, until the time limit is exceeded.
TEST_F(FakeExchange, TestThatFailsBetweenConnectedEndsIsNotRepeated) {
  setenv("FAKE_RDMA_GBITS", "96", 1);
  setenv("FAKE_FAIL_DEV", "fake_0", 1);
  const std::chrono::seconds timeout(30);
  auto other =
      std::async(std::launch::async, [&] { return end(false, timeout, kFake, "fake_1:1"); });
  EXPECT_THAT(
      end(true, timeout),
      HasSubstr("on fake_0:1 failed: Completion with error at client; Failed status 12: wr_id "));
  EXPECT_THAT(other.get(), HasSubstr("on fake_1:1 failed: Couldn't read remote address"));
  unsetenv("FAKE_FAIL_DEV");
}

TEST_F(FakeExchange, HangingToolIsKilledAtTheDeadline) {
  setenv("FAKE_RDMA_GBITS", "hang", 1);
  const std::chrono::milliseconds timeout(700);
  auto other = std::async(std::launch::async, [&] { return end(false, timeout); });
  EXPECT_THAT(end(true, timeout), HasSubstr("did not finish in time"));
  EXPECT_THAT(other.get(), HasSubstr("did not finish in time"));
}

TEST_F(FakeExchange, ToolThatPrintsNoBandwidthIsAnError) {
  setenv("FAKE_RDMA_GBITS", "silent", 1);
  const std::chrono::milliseconds timeout(2000);
  auto other = std::async(std::launch::async, [&] { return end(false, timeout); });
  EXPECT_THAT(end(true, timeout), HasSubstr("printed no bandwidth"));
  EXPECT_NE(other.get(), "");
}

TEST_F(FakeExchange, PeerThatNeverListensIsReportedWithTheToolsMessage) {
  setenv("FAKE_RDMA_GBITS", "96", 1);
  EXPECT_THAT(end(true, std::chrono::milliseconds(3000)),
              HasSubstr("Couldn't connect to n2:18515"));
}

TEST_F(FakeExchange, EndThatCannotListenIsReportedWithTheToolsMessage) {
  setenv("FAKE_RDMA_GBITS", "deaf", 1);
  EXPECT_THAT(end(false, std::chrono::seconds(120)),
              HasSubstr("on fake_0:1 failed: Unable to open the device"));
}

TEST_F(FakeExchange, MissingToolIsNamed) {
  EXPECT_THAT(end(true, std::chrono::seconds(120), "/nowhere/ib_write_bw"),
              HasSubstr("/nowhere/ib_write_bw cannot be started"));
}

}  // namespace
}  // namespace ddp::check
