// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/findings/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "base/text.h"
#include "ddp_runtime/check/findings/node_name.h"

namespace ddp::check {
namespace {

constexpr std::size_t kNamedInVerdictLine = 6;

// Names and texts of the kernel, of users and of other nodes may contain control characters.
std::string as_line(const std::string& text) {
  return sanitize_lines(text, text.size());
}

std::string subject_text(const Finding& finding) {
  std::string text = finding.node;
  if (!finding.peer.empty()) text += " <-> " + finding.peer;
  if (!finding.device.empty()) text += (text.empty() ? "" : " ") + finding.device;
  return text;
}

// Four significant digits, but no exponent for numbers such as milliseconds or MiB, to keep them
// readable.
std::string number_text(double number) {
  const bool large = std::abs(number) >= 1e4 && std::abs(number) < 1e15;
  return large ? fmt::format("{:.0f}", number) : fmt::format("{:.4g}", number);
}

std::string value_text(const Finding& finding) {
  if (const auto* word = std::get_if<std::string>(&finding.value)) return *word;
  const auto* number = std::get_if<double>(&finding.value);
  if (number == nullptr) return "not measured";
  return number_text(*number) + (finding.unit.empty() ? "" : " ") + finding.unit;
}

std::vector<Finding> not_ok_most_severe_first(const Verdict& verdict) {
  std::vector<Finding> bad;
  std::copy_if(verdict.findings.all().begin(), verdict.findings.all().end(),
               std::back_inserter(bad),
               [](const Finding& finding) { return finding.severity != Severity::ok; });
  std::stable_sort(bad.begin(), bad.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return bad;
}

std::string summary(const Verdict& verdict) {
  const std::vector<Finding> bad = not_ok_most_severe_first(verdict);
  if (bad.empty()) return verdict.findings.all().empty() ? "nothing measured" : verdict.summary;
  std::string text;
  for (std::size_t i = 0; i < std::min(bad.size(), kNamedInVerdictLine); ++i) {
    const std::string subject = subject_text(bad[i]);
    text += i == 0 ? "" : ", ";
    text += subject.empty() ? bad[i].check : fmt::format("{} ({})", subject, bad[i].check);
  }
  if (bad.size() > kNamedInVerdictLine) {
    text += fmt::format(" and {} more", bad.size() - kNamedInVerdictLine);
  }
  return text;
}

nlohmann::json json_of(const Finding& finding) {
  nlohmann::json value;  // null
  if (const auto* number = std::get_if<double>(&finding.value)) value = *number;
  if (const auto* word = std::get_if<std::string>(&finding.value)) value = *word;
  return {{"check", finding.check},
          {"severity", name_of(finding.severity)},
          {"subject", {{"node", finding.node}, {"peer", finding.peer}, {"device", finding.device}}},
          {"value", value},
          {"unit", finding.unit},
          {"expected", finding.expected},
          {"rule", finding.rule},
          {"evidence", finding.evidence},
          {"action", finding.action}};
}

}  // namespace

std::vector<std::string> bad_nodes(const Verdict& verdict) {
  std::set<std::string> critical_nodes;
  for (const auto& finding : verdict.findings.all()) {
    const bool one_node = finding.peer.empty() && !finding.node.empty();
    if (finding.severity == Severity::critical && one_node) critical_nodes.insert(finding.node);
  }
  std::vector<std::string> ordered;
  for (const auto& node : verdict.nodes) {
    if (critical_nodes.erase(node) > 0 && is_node_name(node)) ordered.push_back(node);
  }
  return ordered;
}

std::string line_of(const Finding& finding) {
  const std::string subject = subject_text(finding);
  std::string line = fmt::format("{} {}{}{}: {}", name_of(finding.severity), subject,
                                 subject.empty() ? "" : " ", finding.check, value_text(finding));
  if (!finding.expected.empty()) line += ", expected " + finding.expected;
  if (!finding.evidence.empty()) line += ": " + finding.evidence;
  if (!finding.action.empty()) line += "; " + finding.action;
  return as_line(line);
}

std::string verdict_line(const Verdict& verdict) {
  std::string line = fmt::format("ddp-check {} {} - {}", verdict.command,
                                 name_of(verdict.severity()), summary(verdict));
  if (verdict.figures.empty()) return as_line(line);
  line += " |";
  for (const auto& [label, value] : verdict.figures)
    line += fmt::format(" {}={}", label, number_text(value));
  return as_line(line);
}

std::string text_of(const Verdict& verdict) {
  std::string text;
  for (const auto& finding : not_ok_most_severe_first(verdict)) text += line_of(finding) + "\n";
  for (const auto& note : verdict.notes) text += "note: " + as_line(note) + "\n";
  return text + verdict_line(verdict) + "\n";
}

nlohmann::json json_of(const Verdict& verdict, const std::string& program, double unix_time) {
  nlohmann::json findings = nlohmann::json::array();
  for (const auto& finding : verdict.findings.all()) findings.push_back(json_of(finding));
  nlohmann::json figures = nlohmann::json::object();
  for (const auto& [label, value] : verdict.figures) figures[label] = value;
  return {{"schema", "slurm-ddp/check/2"},
          {"program", program},
          {"command", verdict.command},
          {"unix_time", unix_time},
          {"severity", name_of(verdict.severity())},
          {"exit_code", exit_code_of(verdict.severity())},
          {"finished", verdict.finished},
          {"verdict", verdict_line(verdict)},
          {"nodes", verdict.nodes},
          {"bad_nodes", bad_nodes(verdict)},
          {"findings", findings},
          {"figures", figures},
          {"notes", verdict.notes},
          {"measurements", verdict.measurements}};
}

std::string exclude_list(const Verdict& verdict) {
  std::string text;
  for (const auto& node : bad_nodes(verdict)) text += node + "\n";
  return text;
}

}  // namespace ddp::check
