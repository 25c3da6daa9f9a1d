// SPDX-License-Identifier: Apache-2.0
// Tests the actions on a verdict: the choice of nodes, the reasons for draining, events, Markdown.
#include "ddp_runtime/check/findings/operations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace ddp::check {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Finding about(const std::string& node, const std::string& peer, Severity severity) {
  Finding finding;
  finding.check = "tcp.send";
  finding.severity = severity;
  finding.node = node;
  finding.peer = peer;
  finding.evidence = "a | b";
  return finding;
}

Verdict verdict_on_four() {
  Verdict verdict;
  verdict.command = "net";
  verdict.nodes = {"n1", "n2", "n3", "n4"};
  verdict.findings.add(about("n1", "", Severity::ok));
  return verdict;
}

TEST(NodeChoice, SparesReplaceBadNodes) {
  Verdict verdict = verdict_on_four();
  verdict.findings.add(about("n2", "", Severity::critical));
  NodeChoice choice = choose_nodes(verdict, 2);
  EXPECT_TRUE(choice.enough());
  EXPECT_THAT(choice.use, ElementsAre("n1", "n3"));
  EXPECT_THAT(choice.spare, ElementsAre("n4"));
  EXPECT_EQ(sentence_of(choice),
            "2 nodes wanted, 4 given, 1 left out (n2): run on these 2: n[1,3]");
  choice = choose_nodes(verdict, 4);
  EXPECT_FALSE(choice.enough());
  EXPECT_EQ(sentence_of(choice), "4 nodes wanted, 4 given, 1 left out (n2): only 3 are left");
  EXPECT_THAT(choose_nodes(verdict, 0).use, ElementsAre("n1", "n3", "n4"));
}

TEST(NodeChoice, NodesWithAWarningAreUsed) {
  Verdict verdict = verdict_on_four();
  verdict.findings.add(about("n2", "", Severity::warning));
  EXPECT_THAT(choose_nodes(verdict, 4).leave_out, IsEmpty());
}

// The bad end of a link is unknown, but excluding either end is enough.
TEST(NodeChoice, OneEndOfABadLinkIsLeftOutIfThereAreSpares) {
  Verdict verdict = verdict_on_four();
  verdict.findings.add(about("n1", "n3", Severity::critical));
  EXPECT_THAT(choose_nodes(verdict, 3).use, ElementsAre("n1", "n2", "n4"));
  EXPECT_THAT(choose_nodes(verdict, 4).use, ElementsAre("n1", "n2", "n3", "n4"));
}

Finding slow_link(const std::string& one, const std::string& other) {
  Finding finding = about(one, other, Severity::warning);
  finding.check = "mpi.link";
  return finding;
}

// A slow link delays every ring that uses it, although it is not a reason to stop the job.
TEST(NodeChoice, SlowLinkIsLeftOutToo) {
  Verdict verdict = verdict_on_four();
  verdict.findings.add(slow_link("n2", "n4"));
  EXPECT_THAT(choose_nodes(verdict, 3).use, ElementsAre("n1", "n2", "n3"));
  EXPECT_THAT(choose_nodes(verdict, 0).use, ElementsAre("n1", "n2", "n3", "n4"));
  // The finding names only a link, because either of the two MTUs may be right.
  verdict = verdict_on_four();
  verdict.findings.add(about("n2", "n4", Severity::warning));
  EXPECT_THAT(choose_nodes(verdict, 3).use, ElementsAre("n1", "n2", "n3"));
  EXPECT_THAT(choose_nodes(verdict, 3).leave_out, IsEmpty());
}

TEST(NodeChoice, CommonEndOfBadLinksIsLeftOut) {
  Verdict verdict = verdict_on_four();
  verdict.findings.add(slow_link("n2", "n4"));
  verdict.findings.add(slow_link("n2", "n3"));
  EXPECT_THAT(choose_nodes(verdict, 3).use, ElementsAre("n1", "n3", "n4"));
}

TEST(NodeChoice, BadLinkIsReportedIfNoSpareIsLeft) {
  Verdict verdict = verdict_on_four();
  verdict.findings.add(slow_link("n2", "n4"));
  EXPECT_EQ(
      sentence_of(choose_nodes(verdict, 4)),
      "4 nodes wanted, 4 given, 0 left out: run on these 4: n[1-4]; both ends of the bad link "
      "n2 <-> n4 are among them, because no spare is left");
  verdict.findings.add(about("n1", "", Severity::critical));
  EXPECT_THAT(sentence_of(choose_nodes(verdict, 3)), HasSubstr("bad link n2 <-> n4"));
  EXPECT_EQ(sentence_of(choose_nodes(verdict, 2)),
            "2 nodes wanted, 4 given, 2 left out (n[1,4]): run on these 2: n[2-3]");
}

TEST(NodeChoice, SentenceAboutOneNodeIsSingular) {
  Verdict verdict;
  verdict.nodes = {"n1"};
  EXPECT_EQ(sentence_of(choose_nodes(verdict, 1)),
            "1 node wanted, 1 given, 0 left out: run on this one: n1");
}

TEST(Drains, NameTheCheckAndAreSafeForAShell) {
  Verdict verdict = verdict_on_four();
  verdict.findings.add(about("n2", "", Severity::critical));
  verdict.findings.add(about("n1", "n3", Severity::critical));
  const auto drains = drains_of(verdict);
  ASSERT_EQ(drains.size(), 1U);
  EXPECT_EQ(scontrol_line(drains[0]),
            "scontrol update nodename='n2' state=drain reason='ddp-check:tcp.send'");
  EXPECT_EQ(scontrol_line({"n'; rm -rf /\n", "x"}),
            "scontrol update nodename='n; rm -rf /' state=drain reason='x'");
}

TEST(Events, AreOneObjectPerLine) {
  Verdict verdict = verdict_on_four();
  verdict.measurements["tcp"] = {{{"a", "n1"}, {"b", "n2\n"}}};
  std::istringstream lines(events_of(verdict, 12.5));
  std::vector<nlohmann::json> events;
  for (std::string line; std::getline(lines, line);) events.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].at("event"), "finding");
  EXPECT_EQ(events[0].at("subject").at("node"), "n1");
  EXPECT_EQ(events[1].at("event"), "tcp");
  EXPECT_EQ(events[1].at("unix_time"), 12.5);
}

TEST(Markdown, HasItsHeadingsWithoutFindings) {
  Verdict verdict = verdict_on_four();
  for (const char* heading :
       {"\n## Findings\n", "\n## What to do\n", "\n## Checked and in order\n"}) {
    EXPECT_THAT(markdown_of(verdict, choose_nodes(verdict, 0)), HasSubstr(heading));
  }
  verdict.findings.add(about("n2", "", Severity::critical));
  const std::string text = markdown_of(verdict, choose_nodes(verdict, 0));
  EXPECT_THAT(text, HasSubstr("| CRITICAL | CRITICAL n2 tcp.send"));
  EXPECT_THAT(text, HasSubstr("a \\| b"));
}

TEST(Markdown, EscapesHtml) {
  Verdict verdict = verdict_on_four();
  verdict.findings.add(about("n2<img onerror=alert(1)>", "", Severity::critical));
  EXPECT_THAT(markdown_of(verdict, choose_nodes(verdict, 0)), Not(HasSubstr("<img")));
}

}  // namespace
}  // namespace ddp::check
