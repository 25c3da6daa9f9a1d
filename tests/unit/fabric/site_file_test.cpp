// SPDX-License-Identifier: Apache-2.0
// fabric.conf: the valid settings, and one sentence for each possible error.
#include "spank_plugin/fabric/site/site_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "spank_plugin/fabric/files/error.h"

namespace ddp::fabric {
namespace {

constexpr const char* kPath = "/etc/slurm-ddp/fabric.conf";

TEST(SiteFile, ReadsEveryKey) {
  const SiteFile site = parse_site_file(
      "# our cluster\n"
      "; another comment\n"
      "preset       = rack7\n"
      "interface    = bond0.100\n"
      "ib_hca       = mlx5_0:1,mlx5_1\n"
      "nccl_version = 2.18.3\n"
      "ucx          = bind\n"
      "\n"
      "[preset rack7]\n"
      "NCCL_IB_TC = 106\n"
      "NCCL_NET   = AWS Libfabric\n"
      "[preset other]\n"
      "UCX_TLS = rc\r\n",
      kPath);
  EXPECT_EQ(site.path, kPath);
  EXPECT_EQ(site.preset, "rack7");
  EXPECT_EQ(site.interface, "bond0.100");
  EXPECT_EQ(site.ib_hca, "mlx5_0:1,mlx5_1");
  EXPECT_EQ(site.nccl_version, (NcclVersion{2, 18}));
  EXPECT_TRUE(site.bind_ucx);
  ASSERT_EQ(site.presets.size(), 2U);
  EXPECT_EQ(site.presets[0].values[1],
            (std::pair<std::string, std::string>{"NCCL_NET", "AWS Libfabric"}));
  EXPECT_EQ(site.presets[1].source, kPath);
}

// Users copy the example from docs/fabric.md.
TEST(SiteFile, ExampleOfTheManualPageIsValid) {
  std::ifstream page(SLURM_DDP_SOURCE_DIR "/docs/fabric.md");
  std::string example;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("    ")) example += line + "\n";
  }
  const SiteFile site = parse_site_file(example, kPath);
  EXPECT_EQ(site.preset, "rack7");
  EXPECT_EQ(site.nccl_version, (NcclVersion{2, 18}));
  ASSERT_EQ(site.presets.size(), 1U);
  EXPECT_EQ(site.presets[0].values[0].second, "106");
}

TEST(SiteFile, EmptyFileSetsNothing) {
  const SiteFile site = parse_site_file("", kPath);
  EXPECT_FALSE(site.preset || site.interface || site.ib_hca || site.nccl_version || site.bind_ucx);
  EXPECT_EQ(parse_site_file("preset = none", kPath).preset, "none");
  EXPECT_EQ(parse_site_file("preset = efa", kPath).preset, "efa");
}

struct Mistake {
  std::string text;
  std::string message;  // after the path
};

class SiteFileMistake : public testing::TestWithParam<Mistake> {};

TEST_P(SiteFileMistake, IsReportedWithFileLineAndKey) {
  try {
    parse_site_file(GetParam().text, kPath);
    FAIL() << "accepted: " << GetParam().text;
  } catch (const FabricError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith(kPath + GetParam().message));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    EXPECT_LT(std::string(error.what()).size(), 400U);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, SiteFileMistake,
    testing::Values(
        Mistake{"\nprestet = efa", ": line 2 has the unknown key 'prestet'"},
        Mistake{"preset efa", ": line 1 must be KEY = VALUE"},
        Mistake{"ucx = bind\npreset = efaa\n#", ": line 2 asks for preset 'efaa', which does not"},
        Mistake{"ucx = yes", ": line 1 gives 'ucx' the value 'yes': it must be bind or leave"},
        Mistake{"ucx = bind\nucx = bind", ": line 2 sets key 'ucx' a second time"},
        Mistake{"nccl_version = 2", ": line 1 gives 'nccl_version' the value '2'"},
        Mistake{"nccl_version = 2.x", ": line 1 gives 'nccl_version'"},
        Mistake{"nccl_version = 2.1.1.1", ": line 1 gives 'nccl_version'"},
        Mistake{"interface = ^docker", ": line 1 gives 'interface'"},
        Mistake{"interface = a-name-of-16-chr", ": line 1 gives 'interface'"},
        Mistake{"ib_hca = =mlx5_0", ": line 1 gives 'ib_hca'"},
        Mistake{"ib_hca = mlx5_0:x", ": line 1 gives 'ib_hca'"},
        Mistake{"ib_hca = mlx5_0,,mlx5_1", ": line 1 gives 'ib_hca'"},
        Mistake{"[preset]", ": line 1 must be [preset NAME]"},
        Mistake{"[preset a", ": line 1 must be [preset NAME]"},
        Mistake{"[preset A]", ": line 1 names a preset 'A'"},
        Mistake{"[preset none]", ": line 1 names a preset 'none'"},
        Mistake{"[preset a]\n[preset a]", ": line 2 begins preset 'a' a second time"},
        Mistake{"[preset a]\nLD_PRELOAD = /x.so", ": line 2 sets 'LD_PRELOAD'"},
        Mistake{"[preset a]\nPATH = /x", ": line 2 sets 'PATH'"},
        Mistake{"[preset a]\nNCCL_X Y = 1", ": line 2 sets 'NCCL_X Y'"},
        Mistake{"[preset a]\nNCCL_X = 1\nNCCL_X = 2", ": line 3 sets 'NCCL_X' a second time"},
        Mistake{"[preset a]\nNCCL_X = \x1b[31m", ": line 2 has a value that is not printable"},
        Mistake{"ucx = " + std::string(2000, 'x'), ": line 1 has a value that is not printable"},
        Mistake{std::string(5000, '#'), ": line 1 is longer than 4096"},
        Mistake{std::string(5000, '\n'), " has more than 4096 lines"},
        Mistake{"\x01 = " + std::string(300, 'y'), ": line 1 has the unknown key '?"}));

TEST(SiteFile, PresetsAreBounded) {
  std::string text;
  for (int i = 0; i < 65; ++i) text += "[preset p" + std::to_string(i) + "]\n";
  EXPECT_THROW(parse_site_file(text, kPath), FabricError);
  text = "[preset p]\n";
  for (int i = 0; i < 65; ++i) text += "NCCL_X" + std::to_string(i) + " = 1\n";
  EXPECT_THROW(parse_site_file(text, kPath), FabricError);
}

TEST(Preset, BuiltInPresetsSetOnlyAllowedVariables) {
  for (const auto& preset : built_in_presets()) {
    EXPECT_NE(preset.source, "") << preset.name;
    EXPECT_FALSE(preset.values.empty()) << preset.name;
    for (const auto& [name, value] : preset.values) {
      EXPECT_TRUE(may_preset_set(name)) << name;
      EXPECT_NE(value, "") << name;
    }
  }
  EXPECT_EQ(preset_names({}), "efa, azure-ndv4, azure-ndv5, oci-roce, slingshot, gib, none");
}

TEST(Preset, SitesPresetReplacesABuiltInOne) {
  const SiteFile site = parse_site_file("[preset efa]\nFI_PROVIDER = efa", kPath);
  EXPECT_EQ(find_preset(site.presets, "efa")->source, kPath);
  EXPECT_NE(find_preset({}, "efa")->source, kPath);
  EXPECT_FALSE(find_preset({}, "rack7"));
}

}  // namespace
}  // namespace ddp::fabric
