// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/findings/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/hostlist.h"
#include "base/text.h"

namespace ddp::check {
namespace {

using Link = std::pair<std::string, std::string>;

// Bad links, most severe first. The list includes slow links, which delay every ring that uses them
// even if they are not a reason to stop the job.
std::vector<Link> bad_links(const Verdict& verdict) {
  std::vector<Link> links;
  for (const Severity severity : {Severity::critical, Severity::warning}) {
    for (const auto& finding : verdict.findings.all()) {
      const bool grave = severity == Severity::critical || finding.check.ends_with(".link");
      if (finding.peer.empty() || finding.severity != severity || !grave) continue;
      const Link link{finding.node, finding.peer};
      if (std::find(links.begin(), links.end(), link) == links.end()) links.push_back(link);
    }
  }
  return links;
}

// Escapes HTML, because Markdown passes HTML through.
std::string without_html(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<') {
      safe += "&lt;";
    } else {
      safe.push_back(c == '\n' ? ' ' : c);
    }
  }
  return safe;
}

// The end that has more bad links.
const std::string& worse_end(const Link& link, const std::vector<Link>& links) {
  const auto count = [&links](const std::string& node) {
    return std::count_if(links.begin(), links.end(), [&node](const Link& other) {
      return other.first == node || other.second == node;
    });
  };
  return count(link.first) > count(link.second) ? link.first : link.second;
}

std::string counted_nodes(std::size_t number) {
  return counted(number, "node");
}

std::string in_cell(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '|') safe.push_back('\\');
    safe.push_back(c);
  }
  return without_html(safe);
}

// Quotes a text for a shell. Removes quotes and control characters, which valid names and reasons
// do not contain.
std::string quoted(std::string text) {
  std::erase_if(text, [](char c) { return c == '\'' || static_cast<unsigned char>(c) < 0x20; });
  return fmt::format("'{}'", text);
}

}  // namespace

NodeChoice choose_nodes(const Verdict& verdict, int wanted) {
  NodeChoice choice;
  choice.wanted = wanted;
  choice.given = static_cast<int>(verdict.nodes.size());
  const auto bad = bad_nodes(verdict);
  std::set<std::string> out(bad.begin(), bad.end());
  const auto links = bad_links(verdict);
  for (const Link& link : links) {
    const bool enough = static_cast<int>(verdict.nodes.size() - out.size()) > wanted;
    const bool open = !out.contains(link.first) && !out.contains(link.second);
    if (open && enough && wanted > 0) out.insert(worse_end(link, links));
  }
  for (const auto& node : verdict.nodes) {
    if (out.contains(node)) {
      choice.leave_out.push_back(node);
    } else if (wanted == 0 || static_cast<int>(choice.use.size()) < wanted) {
      choice.use.push_back(node);
    } else {
      choice.spare.push_back(node);
    }
  }
  const std::set<std::string> used(choice.use.begin(), choice.use.end());
  for (const Link& link : links) {
    if (used.contains(link.first) && used.contains(link.second)) choice.bad_links.push_back(link);
  }
  return choice;
}

std::vector<Finding> evaluate_choice(const NodeChoice& choice) {
  if (choice.enough()) return {};
  return {{.check = "net.wanted",
           .severity = Severity::critical,
           .value = static_cast<double>(choice.use.size()),
           .unit = "nodes",
           .expected = counted_nodes(static_cast<std::size_t>(choice.wanted)),
           .rule = "as many good nodes as --want asks for",
           .evidence = fmt::format("{} given, {} left out", choice.given, choice.leave_out.size()),
           .action = "request more nodes than the job needs, or give a smaller --want"}};
}

std::string sentence_of(const NodeChoice& choice) {
  std::string text =
      choice.wanted > 0
          ? fmt::format("{} wanted, ", counted_nodes(static_cast<std::size_t>(choice.wanted)))
          : "";
  text += fmt::format("{} given, {} left out", choice.given, choice.leave_out.size());
  if (!choice.leave_out.empty()) {
    text += fmt::format(" ({})", compress_hostlist(choice.leave_out));
  }
  if (!choice.enough()) {
    return text + fmt::format(": only {} {} left", choice.use.size(),
                              choice.use.size() == 1 ? "is" : "are");
  }
  text +=
      fmt::format(": run on {}: {}",
                  choice.use.size() == 1 ? "this one" : fmt::format("these {}", choice.use.size()),
                  compress_hostlist(choice.use));
  for (const auto& [one, other] : choice.bad_links) {
    text += fmt::format("; both ends of the bad link {} <-> {} are among them{}", one, other,
                        choice.wanted > 0 ? ", because no spare is left" : "");
  }
  return text;
}

std::string reason_of(const Finding& finding) {
  return fmt::format("{}{}{}{}", kReasonPrefix, finding.check, finding.device.empty() ? "" : " ",
                     sanitize(finding.device));
}

std::vector<Drain> drains_of(const Verdict& verdict) {
  std::vector<Drain> drains;
  for (const auto& node : bad_nodes(verdict)) {
    const auto& all = verdict.findings.all();
    const auto why = std::find_if(all.begin(), all.end(), [&node](const Finding& finding) {
      return finding.severity == Severity::critical && finding.node == node && finding.peer.empty();
    });
    drains.push_back({node, reason_of(*why)});
  }
  return drains;
}

std::string scontrol_line(const Drain& drain) {
  return fmt::format("scontrol update nodename={} state=drain reason={}", quoted(drain.node),
                     quoted(drain.reason));
}

std::string events_of(const Verdict& verdict, double unix_time) {
  std::string text;
  const auto add = [&](nlohmann::json event) {
    event["schema"] = "slurm-ddp/check-event/1";
    event["unix_time"] = unix_time;
    text += event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  };
  const auto report = json_of(verdict, "", unix_time);
  for (auto finding : report.at("findings")) {
    finding["event"] = "finding";
    add(std::move(finding));
  }
  for (const auto& [kind, list] : verdict.measurements.items()) {
    if (!list.is_array()) continue;
    for (auto measurement : list) {
      measurement["event"] = kind;
      add(std::move(measurement));
    }
  }
  return text;
}

std::string markdown_of(const Verdict& verdict, const NodeChoice& choice) {
  std::string text =
      fmt::format("# {}\n\n{}.\n", without_html(verdict_line(verdict)), sentence_of(choice));
  text += "\n## Findings\n\n";
  std::string rows;
  for (const auto& finding : verdict.findings.all()) {
    if (finding.severity == Severity::ok) continue;
    rows += fmt::format("| {} | {} |\n", name_of(finding.severity), in_cell(line_of(finding)));
  }
  text += rows.empty() ? "Nothing.\n" : "| severity | what |\n|---|---|\n" + rows;
  text += "\n## What to do\n\n";
  const auto drains = drains_of(verdict);
  for (const auto& drain : drains) text += fmt::format("    {}\n", scontrol_line(drain));
  if (drains.empty()) text += "Nothing to drain.\n";
  text += fmt::format("\n## Checked and in order\n\n{} findings are OK.\n",
                      std::count_if(verdict.findings.all().begin(), verdict.findings.all().end(),
                                    [](const Finding& f) { return f.severity == Severity::ok; }));
  return text;
}

}  // namespace ddp::check
