// SPDX-License-Identifier: Apache-2.0
// Damages one file of a node at a time: nothing crashes, and no other device is blamed for it.
// DDP_FUZZ_CASES and DDP_FUZZ_SEED change the number of cases and the seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "ddp_runtime/check/node/infiniband_check.h"
#include "ddp_runtime/check/node/interfaces_check.h"
#include "spank_plugin/fabric/plan/plan.h"
#include "tests/unit/fabric/machine.h"
#include "tests/unit/fabric/mutator.h"

namespace ddp::check {
namespace {

namespace fs = std::filesystem;

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// "infiniband.rate mlx5_0:1" of each CRITICAL finding.
std::set<std::string> critical_findings(const fabric::Node& node) {
  const fabric::ComputePorts compute = choose_compute_ports(node);
  std::set<std::string> critical;
  for (const auto& findings : {evaluate_interfaces(node, compute, {.speed_mbps = 100}),
                               evaluate_infiniband(node, compute)}) {
    for (const auto& finding : findings) {
      if (finding.severity == Severity::critical) {
        critical.insert(finding.check + " " + finding.device);
      }
    }
  }
  return critical;
}

// One file or link of the tree, which is damaged and restored.
class Entry {
 public:
  explicit Entry(fs::path path) : path_(std::move(path)), is_link_(fs::is_symlink(path_)) {
    std::ifstream file;
    if (!is_link_) file.open(path_, std::ios::binary);
    content_ = is_link_ ? fs::read_symlink(path_).string()
                        : std::string{std::istreambuf_iterator<char>(file), {}};
  }

  void damage(test::Mutator& mutator) {
    fs::remove(path_);
    switch (mutator.below(4)) {
      case 0:
        return;
      case 1:
        return write(content_ + content_);
      default:
        write(mutator.damaged(content_));
    }
  }

  void restore() {
    fs::remove(path_);
    write(content_);
  }

  const fs::path& path() const { return path_; }

 private:
  void write(const std::string& content) {
    if (!is_link_) {
      std::ofstream(path_, std::ios::binary) << content;
      return;
    }
    std::error_code error;  // a target may be too long, or empty
    fs::create_symlink(fs::path(content), path_, error);
  }

  fs::path path_;
  bool is_link_;
  std::string content_;
};

std::vector<fs::path> entries_below(const fs::path& root) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.is_symlink() || entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// True if the file is about the device, or about what all devices depend on: the device's name or
// its place on the bus is part of the path. A finding without a device is about all interfaces.
bool concerns(const fabric::Node& node, const fs::path& path, const std::string& finding) {
  const std::string device = finding.substr(finding.find(' ') + 1);
  if (device.empty()) return path.string().find("class/net") != std::string::npos;
  std::set<std::string> parts(path.begin(), path.end());
  if (parts.contains(device.substr(0, device.find(':')))) return true;
  return std::any_of(node.ports.begin(), node.ports.end(), [&](const auto& port) {
    return name_of(port) == device && parts.contains(port.bus_address);
  });
}

void damage_machine(const std::string& name, test::Mutator& mutator, std::uint64_t cases) {
  const test::Machine machine(test::machine_text(name));
  const fabric::Node whole = machine.read();
  const auto before = critical_findings(whole);
  const auto paths = entries_below(machine.root());
  for (std::uint64_t i = 0; i < cases; ++i) {
    Entry entry(paths[mutator.below(paths.size())]);
    SCOPED_TRACE(name + " case " + std::to_string(i) + ": " + entry.path().string());
    entry.damage(mutator);
    for (const auto& finding : critical_findings(machine.read())) {
      EXPECT_TRUE(before.contains(finding) || concerns(whole, entry.path(), finding)) << finding;
    }
    entry.restore();
  }
}

TEST(MachineDamage, BlamesNoOtherDevice) {
  const std::uint64_t cases = number_from_environment("DDP_FUZZ_CASES", 2'000);
  test::Mutator mutator(number_from_environment("DDP_FUZZ_SEED", 20'261'129));
  const auto names = test::machine_names();
  for (const auto& name : names) {
    if (testing::Test::HasFailure()) return;
    damage_machine(name, mutator, 1 + cases / names.size());
  }
}

}  // namespace
}  // namespace ddp::check
