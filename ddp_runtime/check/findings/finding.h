// SPDX-License-Identifier: Apache-2.0
// The result of one check of one subject. All checks produce findings, and all output is generated
// from findings.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ddp::check {

// In ascending order. UNKNOWN ranks above WARNING because a gate that lets warnings pass must still
// stop a node that could not be measured.
enum class Severity : std::uint8_t { ok, warning, unknown, critical };

std::string_view name_of(Severity severity) noexcept;
// The exit codes that monitoring systems expect: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
int exit_code_of(Severity severity) noexcept;

// A number in `unit`, a word, or empty if the check measured nothing.
using Value = std::variant<std::monostate, double, std::string>;

struct Finding {
  std::string check;  // "infiniband.rate"; stable, for scripts
  Severity severity = Severity::unknown;
  std::string node = {};    // the node that the finding is about
  std::string peer = {};    // the other end if the finding is about a link
  std::string device = {};  // "eth0", "mlx5_0:1", "/dev/shm"; may be empty
  Value value = {};
  std::string unit = {};      // unit of the value; empty for words
  std::string expected = {};  // "at least 64 MiB"
  std::string rule = {};      // reason for the severity
  std::string evidence = {};  // what was observed
  std::string action = {};    // what to do; empty when OK
};

// The findings of one run. A second finding of the same check about the same subject can only raise
// the severity, so a later pass never hides an earlier warning.
class Findings {
 public:
  void add(Finding finding);
  void add(std::vector<Finding> findings);

  const std::vector<Finding>& all() const noexcept { return findings_; }
  // The highest severity. UNKNOWN if there are no findings, because then nothing was measured.
  Severity severity() const noexcept;

 private:
  std::vector<Finding> findings_;
  // Index of the finding about this check, node, peer and device.
  std::map<std::array<std::string, 4>, std::size_t> places_;
};

}  // namespace ddp::check
