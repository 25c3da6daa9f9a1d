// What an administrator or a job script does with a verdict: which nodes to use when more were
// allocated than wanted, how to drain the bad ones, and the findings as lines and as a page.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/check/verdict.h"

namespace ddp::check {

// Which nodes to run on. Bad nodes are left out; of a bad or slow link one end, as long as more are
// left than wanted.
struct NodeChoice {
  int wanted = 0;  // 0: all good ones
  int given = 0;
  std::vector<std::string> use;
  std::vector<std::string> leave_out;                          // bad, or one end of a bad link
  std::vector<std::string> spare;                              // good, but more than wanted
  std::vector<std::pair<std::string, std::string>> bad_links;  // both of whose ends are used
  bool enough() const { return wanted == 0 || static_cast<int>(use.size()) == wanted; }
};
NodeChoice choose_nodes(const Verdict& verdict, int wanted);

// "64 nodes wanted, 66 given, 2 left out: run on these 64", and which bad links are among them.
std::string sentence_of(const NodeChoice& choice);

// Why a node should be drained; begins with kReasonPrefix so that no other reason is taken for
// ours, and with the check, because sinfo shows 20 characters.
inline constexpr const char* kReasonPrefix = "ddp-check:";
struct Drain {
  std::string node;
  std::string reason;
};
std::vector<Drain> drains_of(const Verdict& verdict);

// The command that drains it, as a line for a shell.
std::string scontrol_line(const Drain& drain);

// One JSON object a line: every finding, then every exchange that was measured.
std::string events_of(const Verdict& verdict, double unix_time);

// The report in Markdown; the headings are stable, for programs that look for them.
std::string markdown_of(const Verdict& verdict, const NodeChoice& choice);

}  // namespace ddp::check
