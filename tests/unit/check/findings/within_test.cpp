// SPDX-License-Identifier: Apache-2.0
// Tests calls with a time limit: any call, and the resolution of names.
#include "ddp_runtime/check/findings/within.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/socket.h"
#include "ddp_runtime/check/findings/resolve.h"

namespace ddp::check {
namespace {

constexpr std::chrono::minutes kLongEnough{1};

TEST(RunWithin, TimesOut) {
  const auto gate = std::make_shared<std::promise<void>>();
  const auto stuck = [opened = gate->get_future().share()] {
    opened.wait();
    return 1;
  };
  EXPECT_FALSE(run_within(std::chrono::milliseconds(20), stuck));
  gate->set_value();  // lets the thread exit
}

TEST(RunWithin, PassesResultsAndExceptions) {
  EXPECT_EQ(run_within(kLongEnough, [] { return 7; }), 7);
  EXPECT_THROW(run_within(kLongEnough, []() -> int { throw std::runtime_error("broken"); }),
               std::runtime_error);
}

TEST(Resolve, ResolvesNumericNamesAndRejectsUnknownOnes) {
  EXPECT_EQ(resolve("127.0.0.1", kLongEnough).addresses, std::vector<std::string>{"127.0.0.1"});
  const Resolution unknown = resolve("name.invalid.", kLongEnough);
  EXPECT_TRUE(unknown.addresses.empty());
  EXPECT_NE(unknown.error, "");
}

TEST(Resolve, AddressesAreSortedAndUnique) {
  auto addresses = resolve("localhost", kLongEnough).addresses;
  const auto as_given = addresses;
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  EXPECT_EQ(as_given, addresses);
}

TEST(Resolve, RecognizesLoopback) {
  EXPECT_TRUE(is_loopback("127.0.1.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("10.127.0.1"));
  EXPECT_FALSE(only_loopback({}));
  EXPECT_FALSE(only_loopback({"127.0.0.1", "10.0.0.1"}));
}

}  // namespace
}  // namespace ddp::check
