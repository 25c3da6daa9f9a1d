// SPDX-License-Identifier: Apache-2.0
// Tests the output of a verdict: every format names the bad node.
#include "ddp_runtime/check/findings/verdict.h"

#include <gtest/gtest.h>

#include <string>

namespace ddp::check {
namespace {

Verdict four_nodes() {
  Verdict verdict;
  verdict.command = "net";
  verdict.nodes = {"n1", "n2", "n3", "n4"};
  verdict.summary = "4 nodes";
  verdict.findings.add(Finding{.check = "tcp.send", .severity = Severity::ok, .node = "n1"});
  return verdict;
}

Finding critical(const std::string& node) {
  return {.check = "tcp.send",
          .severity = Severity::critical,
          .node = node,
          .value = 0.12,
          .unit = "GB/s",
          .expected = "at least 0.9 GB/s",
          .evidence = "best of 3 partners",
          .action = "exclude it"};
}

TEST(Verdict, HealthyRunHasOneLine) {
  Verdict verdict = four_nodes();
  verdict.figures = {{"n", 4}, {"tcp_GBps", 1.23456}};
  EXPECT_EQ(text_of(verdict), "ddp-check net OK - 4 nodes | n=4 tcp_GBps=1.235\n");
  EXPECT_EQ(exclude_list(verdict), "");
}

TEST(Verdict, FindingIsOneLine) {
  EXPECT_EQ(line_of(critical("n3")),
            "CRITICAL n3 tcp.send: 0.12 GB/s, expected at least 0.9 GB/s: best of 3 partners; "
            "exclude it");
  EXPECT_EQ(line_of(Finding{.check = "x", .node = "a", .peer = "b", .device = "eth0"}),
            "UNKNOWN a <-> b eth0 x: not measured");
}

// The kernel accepts interfaces with almost any name.
TEST(Verdict, ControlCharactersDoNotReachTheTerminal) {
  Verdict verdict = four_nodes();
  Finding finding = critical("n3");
  finding.device = "eth\x1b[2J0";
  finding.evidence = "two\nlines\x9b\a";
  verdict.findings.add(finding);
  verdict.notes = {"\x1b]0;x\a"};
  EXPECT_EQ(text_of(verdict),
            "CRITICAL n3 eth?[2J0 tcp.send: 0.12 GB/s, expected at least 0.9 GB/s: two lines??; "
            "exclude it\nnote: ?]0;x?\nddp-check net CRITICAL - n3 eth?[2J0 (tcp.send)\n");
}

// In other tools, this line said "ran successfully", with exit code 2 and without a host name.
TEST(Verdict, LineNamesTheBadNode) {
  Verdict verdict = four_nodes();
  verdict.findings.add(critical("n3"));
  EXPECT_EQ(verdict_line(verdict), "ddp-check net CRITICAL - n3 (tcp.send)");
}

TEST(Verdict, ListsTheMostSevereFirstAndNamesAtMostSix) {
  Verdict verdict = four_nodes();
  verdict.findings.add(Finding{.check = "clock", .severity = Severity::warning, .node = "n1"});
  for (const char* node : {"n10", "n11", "n12", "n13", "n14", "n15", "n16"}) {
    verdict.findings.add(critical(node));
  }
  const std::string line = verdict_line(verdict);
  EXPECT_TRUE(line.starts_with("ddp-check net CRITICAL - n10 (tcp.send), ")) << line;
  EXPECT_TRUE(line.ends_with("n15 (tcp.send) and 2 more")) << line;
  EXPECT_TRUE(text_of(verdict).starts_with("CRITICAL n10 ")) << text_of(verdict);
}

TEST(Verdict, NothingMeasuredIsUnknown) {
  Verdict verdict;
  verdict.command = "net";
  verdict.summary = "all fine";
  EXPECT_EQ(text_of(verdict), "ddp-check net UNKNOWN - nothing measured\n");
}

TEST(Verdict, OnlyNodesWithACriticalFindingOfTheirOwnAreBad) {
  Verdict verdict = four_nodes();
  verdict.findings.add(critical("n4"));
  verdict.findings.add(critical("n2"));
  verdict.findings.add(Finding{.check = "w", .severity = Severity::warning, .node = "n1"});
  verdict.findings.add(Finding{.check = "u", .severity = Severity::unknown, .node = "n1"});
  Finding link = critical("n1");
  link.peer = "n3";
  verdict.findings.add(link);
  verdict.findings.add(Finding{.check = "fabric", .severity = Severity::critical});
  EXPECT_EQ(exclude_list(verdict), "n2\nn4\n");
}

// The names are passed to scontrol and written to exclude files.
TEST(Verdict, OnlyValidNodeNamesOfTheStepAreBad) {
  Verdict verdict = four_nodes();
  for (const char* name : {"ALL", "all", "n[1-9]", "n1,n2", "n1\nn3", "-w", "", "n 1"}) {
    verdict.nodes.emplace_back(name);
    verdict.findings.add(critical(name));
  }
  verdict.findings.add(critical("n5"));  // not among the checked nodes
  verdict.findings.add(critical("n4"));
  EXPECT_EQ(exclude_list(verdict), "n4\n");
}

TEST(Verdict, JsonContainsAllFindings) {
  Verdict verdict = four_nodes();
  verdict.findings.add(critical("n3"));
  verdict.findings.add(Finding{.check = "x", .node = "n1", .value = "word"});
  verdict.figures = {{"n", 4}};
  const auto json = json_of(verdict, "ddp-check 0.1.0", 1700000000.5);
  EXPECT_EQ(json["schema"], "slurm-ddp/check/2");
  EXPECT_EQ(json["program"], "ddp-check 0.1.0");
  EXPECT_EQ(json["command"], "net");
  EXPECT_EQ(json["unix_time"], 1700000000.5);
  EXPECT_EQ(json["severity"], "CRITICAL");
  EXPECT_EQ(json["exit_code"], 2);
  EXPECT_EQ(json["bad_nodes"], nlohmann::json({"n3"}));
  EXPECT_EQ(json["figures"]["n"], 4);
  const auto& findings = json["findings"];
  ASSERT_EQ(findings.size(), 3U);
  EXPECT_EQ(findings[0]["value"], nullptr);
  EXPECT_EQ(findings[1]["subject"]["node"], "n3");
  EXPECT_EQ(findings[1]["value"], 0.12);
  EXPECT_EQ(findings[1]["unit"], "GB/s");
  EXPECT_EQ(findings[1]["expected"], "at least 0.9 GB/s");
  EXPECT_EQ(findings[1]["action"], "exclude it");
  EXPECT_EQ(findings[2]["value"], "word");
}

TEST(Verdict, AThousandNodesAreAllNamed) {
  Verdict verdict;
  verdict.command = "net";
  for (int node = 0; node < 1024; ++node) {
    std::string name = "node";
    name += std::to_string(node);
    verdict.nodes.push_back(name);
    const bool bad = node % 100 == 7;
    for (const char* check : {"tcp.send", "tcp.receive"}) {
      verdict.findings.add(Finding{
          .check = check, .severity = bad ? Severity::critical : Severity::ok, .node = name});
    }
  }
  EXPECT_EQ(verdict.findings.all().size(), 2048U);
  EXPECT_EQ(bad_nodes(verdict).size(), 11U);
  EXPECT_EQ(exit_code_of(verdict.severity()),
            2);  // not a count, since 256 failures would be exit code 0
}

}  // namespace
}  // namespace ddp::check
