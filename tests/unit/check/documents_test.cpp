// SPDX-License-Identifier: Apache-2.0
// Compares the tables of findings in docs/checks.md with the sources: they must list every finding,
// and no finding that does not exist.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
// With a sanitizer, GCC 12 prints warnings about its own <regex>.
#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <regex>
#pragma GCC diagnostic pop
#include <set>
#include <sstream>
#include <string>

namespace ddp::check {
namespace {

const std::filesystem::path kProject = SLURM_DDP_SOURCE_DIR;

std::string content_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// Adds `prefix` and the first group of every match, with NAME in place of parts that are known only
// at run time.
void add_names(std::set<std::string>& names, const std::string& text, const char* pattern,
               const std::string& prefix = "") {
  const std::regex expression(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), expression), end; at != end; ++at) {
    auto name = std::regex_replace((*at)[1].str(), std::regex(R"(\{\})"), "NAME");
    if (name.ends_with('.')) name += "NAME";
    names.insert(prefix + name);
  }
}

std::set<std::string> findings_in_sources() {
  std::set<std::string> names;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(kProject / "ddp_runtime/check")) {
    if (entry.path().extension() != ".cpp") continue;
    const auto text = content_of(entry.path());
    add_names(names, text, R"re("([a-z]+\.[a-z_]*(?:\{\})?[a-z_]*)")re");
    add_names(names, text, R"re((?:kind \+|send \?|:) "\.([a-z_]+)")re", "WAY.");
    add_names(names, text, R"re(check_of\(measured, "([a-z_]*)"\))re", "WAY.NAME");
    add_names(names, text, R"re(Charge charge\{"([a-z_]+)")re", "WAY.");
  }
  // Removes facts, which drift.NAME covers.
  std::erase_if(names, [](const std::string& name) {
    return std::regex_search(name, std::regex("^(driver|firmware|library)\\."));
  });
  return names;
}

std::set<std::string> findings_in_tables() {
  std::istringstream page(content_of(kProject / "docs/checks.md"));
  std::set<std::string> names;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("#")) inside = line == "### Findings";
    if (!inside || !line.starts_with("| `")) continue;
    add_names(names, line.substr(0, line.find('|', 1)), R"(`([A-Za-z]+\.[A-Za-z_]+)`)");
  }
  return names;
}

TEST(Documents, TablesListExactlyTheExistingFindings) {
  const auto made = findings_in_sources();
  EXPECT_GT(made.size(), 60U);
  EXPECT_THAT(findings_in_tables(), testing::ContainerEq(made));
}

}  // namespace
}  // namespace ddp::check
