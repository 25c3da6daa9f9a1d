// SPDX-License-Identifier: Apache-2.0
// The plan's ports and the check's findings about the network of all nodes in
// tests/unit/fabric/machines, compared with machine_findings.txt. DDP_WRITE_FINDINGS=FILE writes
// the present ones; read the difference before you copy it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

#include "ddp_runtime/check/node/infiniband_check.h"
#include "ddp_runtime/check/node/interfaces_check.h"
#include "spank_plugin/fabric/plan/plan.h"
#include "tests/unit/fabric/machine.h"

namespace ddp::check {
namespace {

constexpr const char* kExpected =
    SLURM_DDP_SOURCE_DIR "/tests/unit/check/node/machine_findings.txt";

std::string ports_text(const fabric::Node& node, const std::vector<fabric::LeftOutPort>& ports,
                       const std::string& verb) {
  std::map<std::string, std::string> by_reason;
  for (const auto& entry : ports) by_reason[entry.reason] += " " + name_of(node.ports[entry.port]);
  std::string text;
  for (const auto& [reason, names] : by_reason) {
    text += "  " + verb + " (" + reason + "):" + names + "\n";
  }
  return text;
}

std::string plan_text(const fabric::Node& node, const fabric::ComputePorts& compute) {
  fabric::Request request;
  request.node_count = 2;
  const fabric::Plan plan = make_plan(node, request, {});
  const auto* hca = plan.find("NCCL_IB_HCA");
  std::string text = hca == nullptr ? "" : "  NCCL_IB_HCA=" + hca->value + "\n";
  text += ports_text(node, compute.left_out, "left out");
  return text + ports_text(node, compute.doubtful, "doubtful");
}

std::string findings_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const auto& finding : findings) {
    if (finding.severity == Severity::ok) continue;
    text += "  " + std::string(name_of(finding.severity)) + " " + finding.check + " " +
            finding.device + ": " + finding.evidence + "\n";
  }
  return text;
}

std::string report_on(const std::string& machine) {
  const fabric::Node node = test::Machine(test::machine_text(machine)).read();
  const fabric::ComputePorts compute = choose_compute_ports(node);
  return machine + "\n" + plan_text(node, compute) +
         findings_text(evaluate_interfaces(node, compute, {})) +
         findings_text(evaluate_infiniband(node, compute));
}

// Splits a text at the lines that are not indented. Lines with # are left out.
std::map<std::string, std::string> by_machine(const std::string& text) {
  std::map<std::string, std::string> parts;
  std::istringstream lines(text);
  std::string machine;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    if (line.front() != ' ') machine = line;
    parts[machine] += line + "\n";
  }
  return parts;
}

TEST(MachineFindings, AreThoseOfTheTable) {
  std::ifstream file(kExpected);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  auto expected = by_machine(text);
  std::string all;
  for (const auto& machine : test::machine_names()) {
    const std::string report = report_on(machine);
    EXPECT_EQ(report, expected[machine]);
    expected.erase(machine);
    all += report;
  }
  for (const auto& [machine, report] : expected) ADD_FAILURE() << "no machine " << machine;
  if (const char* path = std::getenv("DDP_WRITE_FINDINGS")) std::ofstream(path) << all;
}

}  // namespace
}  // namespace ddp::check
