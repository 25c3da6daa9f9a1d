// SPDX-License-Identifier: Apache-2.0
// Tests that severities only rise, and that a missing measurement is never OK.
#include "ddp_runtime/check/findings/finding.h"

#include <gtest/gtest.h>

#include <string>

namespace ddp::check {
namespace {

TEST(Severity, CodesMatchMonitoringSystems) {
  EXPECT_EQ(exit_code_of(Severity::ok), 0);
  EXPECT_EQ(exit_code_of(Severity::warning), 1);
  EXPECT_EQ(exit_code_of(Severity::critical), 2);
  EXPECT_EQ(exit_code_of(Severity::unknown), 3);
}

TEST(Findings, AnEmptyListIsUnknown) {
  EXPECT_EQ(Findings().severity(), Severity::unknown);
}

// A suite that writes WARN and then PASS under one name loses the warning.
TEST(Findings, LaterPassDoesNotHideAWarning) {
  Findings findings;
  findings.add(Finding{.check = "c", .severity = Severity::warning, .evidence = "first"});
  findings.add(Finding{.check = "c", .severity = Severity::ok});
  ASSERT_EQ(findings.all().size(), 1U);
  EXPECT_EQ(findings.severity(), Severity::warning);
  EXPECT_EQ(findings.all()[0].evidence, "first");
}

TEST(Findings, MoreSevereFindingReplacesALesserOne) {
  Findings findings;
  findings.add(Finding{.check = "c", .severity = Severity::warning});
  findings.add(Finding{.check = "c", .severity = Severity::critical, .evidence = "second"});
  ASSERT_EQ(findings.all().size(), 1U);
  EXPECT_EQ(findings.all()[0].evidence, "second");
}

TEST(Findings, DifferentSubjectsStayApart) {
  Findings findings;
  findings.add(Finding{.check = "c", .severity = Severity::ok, .node = "a"});
  findings.add(Finding{.check = "c", .severity = Severity::ok, .node = "b"});
  findings.add(Finding{.check = "c", .severity = Severity::ok, .node = "b", .peer = "a"});
  findings.add(Finding{.check = "c", .severity = Severity::ok, .node = "b", .device = "eth0"});
  EXPECT_EQ(findings.all().size(), 4U);
}

TEST(Findings, UnknownOutranksWarningButNotCritical) {
  Findings findings;
  findings.add(Finding{.check = "a", .severity = Severity::warning});
  findings.add(Finding{.check = "b", .severity = Severity::unknown});
  EXPECT_EQ(findings.severity(), Severity::unknown);
  findings.add(Finding{.check = "c", .severity = Severity::critical});
  EXPECT_EQ(findings.severity(), Severity::critical);
}

}  // namespace
}  // namespace ddp::check
