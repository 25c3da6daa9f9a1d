// SPDX-License-Identifier: Apache-2.0
// Compares the documents with the code: they describe exactly the existing items and arguments, and
// every test that a table names exists.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
// GCC 12 with a sanitizer gives warnings for its own <regex>.
#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <regex>
#pragma GCC diagnostic pop
#include <set>
#include <sstream>

#include "spank_plugin/launch/settings/settings.h"

namespace ddp::launch {
namespace {

const std::filesystem::path kRoot = SLURM_DDP_SOURCE_DIR;

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(kRoot / file);
  EXPECT_TRUE(stream) << file;
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::set<std::string> names_of(std::span<const SpecItem> items) {
  std::set<std::string> names;
  for (const auto& item : items) names.emplace(item.name);
  return names;
}

// Returns the first group of every match.
std::set<std::string> all_matches(const std::string& text, const std::string& pattern) {
  std::set<std::string> found;
  const std::regex expression(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), expression), end; at != end; ++at)
    found.insert((*at)[1]);
  return found;
}

std::string section(const std::string& text, const std::string& from, const std::string& to) {
  const auto begin = text.find(from);
  const auto end = text.find(to, begin);
  EXPECT_NE(begin, std::string::npos) << from;
  EXPECT_NE(end, std::string::npos) << to;
  return text.substr(begin, end - begin);
}

TEST(Documents, ConfigurationFileListsExactlyTheArguments) {
  EXPECT_EQ(all_matches(text_of("spank_plugin/spank/ddp.conf.in"), "#   ([a-z_]+)="),
            names_of(site_arguments()));
}

TEST(Documents, AdministratorsPageListsExactlyTheArguments) {
  const auto arguments = section(text_of("docs/man/ddp.8"), ".SH ARGUMENTS", ".SH PORTS");
  EXPECT_EQ(all_matches(arguments, R"(\.TP\n\.B[IR] ([a-z_]+)=)"), names_of(site_arguments()));
}

TEST(Documents, LaunchPageListsExactlyTheArguments) {
  const auto table =
      section(text_of("docs/launch.md"), "| argument | meaning", "Arguments are read where");
  EXPECT_EQ(all_matches(table, "[|`,] `([a-z_]+)="), names_of(site_arguments()));
}

TEST(Documents, UsersPageListsExactlyTheItems) {
  const auto page = text_of("docs/man/srun-ddp.1");
  EXPECT_EQ(all_matches(section(page, ".SS Words", ".SS Keys"), R"(\.TP\n\.B ([a-z_]+)\n)"),
            names_of(spec_words()));
  const auto keys = section(page, ".SS Keys", ".SH ENVIRONMENT");
  EXPECT_EQ(all_matches(keys, R"((?:\n\.B[IR] |", " )([a-z_]+)=)"), names_of(spec_keys()));
}

TEST(Documents, LaunchPageListsExactlyTheItems) {
  const auto table =
      section(text_of("docs/launch.md"), "| item | meaning |", "With `sbatch --ddp`");
  auto expected = names_of(spec_words());
  expected.merge(names_of(spec_keys()));
  EXPECT_EQ(all_matches(table, "[| ,]`([a-z_]+)[=`]"), expected);
}

// Tests are named as `file_test.cpp Suite.Case` or `file.bats "title"`.
TEST(Documents, NamedTestsExist) {
  const auto page = text_of("docs/evidence/launch.md");
  const auto gtests = all_matches(page, R"re(`([a-z_]+\.cpp [A-Za-z0-9]+\.[A-Za-z0-9]+)`)re");
  const auto bats = all_matches(page, R"re(`([a-z_]+\.bats "[^`]+")`)re");
  EXPECT_GT(gtests.size(), 15U);
  EXPECT_GT(bats.size(), 15U);
  for (const auto& name : gtests) {
    const auto space = name.find(' ');
    const auto dot = name.find('.', space);
    const std::regex definition("TEST(_P|_F)?\\(" + name.substr(space + 1, dot - space - 1) +
                                ",\\s+" + name.substr(dot + 1) + "\\)");
    bool is_there = false;
    for (const auto* directory : {"tests/unit/launch/", "tests/unit/fabric/", "tests/unit/base/"}) {
      const auto file = directory + name.substr(0, space);
      if (std::filesystem::exists(kRoot / file)) {
        is_there = is_there || std::regex_search(text_of(file), definition);
      }
    }
    EXPECT_TRUE(is_there) << name;
  }
  for (const auto& name : bats) {
    const auto space = name.find(' ');
    const auto file = text_of("tests/cluster/" + name.substr(0, space));
    EXPECT_NE(file.find("@test " + name.substr(space + 1) + " {"), std::string::npos) << name;
  }
}

TEST(Documents, EveryRowOfTheComparisonNamesATest) {
  const auto page = text_of("docs/evidence/launch.md");
  const auto tables = page.substr(page.find("Starting a step:"));
  std::istringstream lines(tables);
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ") || line.starts_with("| feature")) continue;
    ++rows;
    EXPECT_TRUE(std::regex_search(line, std::regex(R"(`[a-z_]+\.(cpp|bats) )"))) << line;
  }
  EXPECT_EQ(rows, 49);
}

}  // namespace
}  // namespace ddp::launch
