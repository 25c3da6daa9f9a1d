// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/step/hostfile.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/errors.h"

namespace ddp::launch {
namespace {

struct FirstHost {
  std::string file;
  std::optional<std::string> host;
};

class Hostfile : public testing::TestWithParam<FirstHost> {};

TEST_P(Hostfile, GivesTheHostOfRankZero) {
  EXPECT_EQ(first_host_of_hostfile(GetParam().file), GetParam().host) << GetParam().file;
}

INSTANTIATE_TEST_SUITE_P(Files, Hostfile,
                         testing::Values(FirstHost{"p2\np1\np2\np1\n", "p2"}, FirstHost{"p2", "p2"},
                                         FirstHost{"p[3-4]\np1\n", "p3"}, FirstHost{"p2*4\n", "p2"},
                                         FirstHost{"# order\n\n  \t\n p7  # the fast one\n", "p7"},
                                         FirstHost{"p2,p1,p2\n", "p2"},
                                         FirstHost{"p4\r\np1\r\n", "p4"},
                                         FirstHost{"", std::nullopt},
                                         FirstHost{"# nothing\n", std::nullopt},
                                         FirstHost{",\n", std::nullopt}));

TEST(HostfileErrors, AreReported) {
  EXPECT_THROW(first_host_of_hostfile("p[1-\n"), UsageError);
  EXPECT_THROW(first_host_of_hostfile("\x7f"
                                      "ELF\x02\x01"),
               UsageError);
}

}  // namespace
}  // namespace ddp::launch
