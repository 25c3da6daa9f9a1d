// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/render/check_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "ddp_runtime/report/render/escape.h"
#include "ddp_runtime/report/render/style.h"

namespace ddp::report {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxInMap = 128;
constexpr std::size_t kMaxRows = 500;
constexpr double kCell = 22;
// Colors for speeds relative to the median, from a color-blind safe sequence; dark is slow. The
// number itself is in the cell's title and in the table.
constexpr std::array<std::pair<double, std::string_view>, 5> kShades{
    {{0.25, "#440154"}, {0.50, "#31688e"}, {0.80, "#35b779"}, {0.90, "#b5de2b"}, {1e9, "#fde725"}}};

constexpr const char* kMapStyle =
    ".map text{font-size:11px}.map .none{fill:var(--grid)}.map{max-width:100%;height:auto}"
    ".keys{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;padding:0}"
    ".keys i{display:inline-block;width:12px;height:12px;margin-right:6px;border:1px solid "
    "var(--rule)}.scroll{overflow-x:auto}";

std::string_view shade_of(double speed, double median) {
  for (const auto& [below, color] : kShades) {
    if (speed < below * median) return color;
  }
  return kShades.back().second;
}

// Whether the key holds pair measurements, not retests or the devices that carried the data.
bool is_list_of_pairs(const json& list) {
  return list.is_array() && !list.empty() && list.front().contains("a_to_b_GBps");
}

struct Speeds {
  std::vector<std::string> nodes;
  std::map<std::pair<std::string, std::string>, double>
      from_to;  // best speed in GB/s; 0 if the measurement failed
  double median = 0;
};

// `rail`: the only RDMA port to consider; empty: all.
Speeds speeds_of(const json& report, const json& pairs, const std::string& rail) {
  Speeds speeds;
  report.at("nodes").get_to(speeds.nodes);
  std::vector<double> values;
  for (const auto& pair : pairs) {
    if (!rail.empty() && pair.value("rail", "") != rail) continue;
    const std::string a = pair.at("a");
    const std::string b = pair.at("b");
    for (const auto& [from, to, key] : {std::tuple(a, b, "a_to_b_GBps"), {b, a, "b_to_a_GBps"}}) {
      double& best = speeds.from_to[{from, to}];
      best = std::max(best, pair.at(key).get<double>());
      if (best > 0) values.push_back(best);
    }
  }
  if (values.empty()) return speeds;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  speeds.median = values[values.size() / 2];
  return speeds;
}

std::string cell(const Speeds& speeds, std::size_t row, std::size_t column, double left) {
  const auto found = speeds.from_to.find({speeds.nodes[row], speeds.nodes[column]});
  const std::string pair =
      html_escape(fmt::format("{} to {}", speeds.nodes[row], speeds.nodes[column]));
  const bool known = found != speeds.from_to.end();
  return fmt::format(
      "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"20\" height=\"20\" {}><title>{}: "
      "{}</title></rect>\n",
      left + kCell * static_cast<double>(column), kCell * static_cast<double>(row + 1),
      known ? fmt::format("fill=\"{}\"", shade_of(found->second, speeds.median)) : "class=\"none\"",
      pair, known ? fmt::format("{:.3g} GB/s", found->second) : "not measured");
}

// A transport over which pairs were measured: its name in the report, and its display name in HTML.
struct Way {
  std::string kind;  // "tcp", "tcp_eth1", "verbs", "nccl", "mpi"
  std::string id;
  std::string title;
  std::string rail = {};  // one of several RDMA ports; empty: all pairs of the list
};

// The RDMA ports in the list, in order.
std::vector<std::string> rails_in(const json& measurements) {
  std::vector<std::string> rails;
  for (const auto& pair : measurements.value("verbs", json::array())) {
    const std::string rail = pair.value("rail", "");
    if (std::find(rails.begin(), rails.end(), rail) == rails.end()) rails.push_back(rail);
  }
  return rails;
}

// All transports over which pairs were measured, in order: plain TCP, its rails, RDMA, NCCL, MPI.
std::vector<Way> ways_of(const json& measurements) {
  constexpr std::string_view kRail = "tcp_";
  std::vector<Way> ways;
  const auto add = [&](const std::string& kind, const std::string& title,
                       const std::string& rail = {}) {
    if (!measurements.contains(kind) || measurements.at(kind).empty()) return;
    ways.push_back({kind, fmt::format("way{}", ways.size() + 1), title, rail});
  };
  add("tcp", "TCP");
  for (const auto& [kind, list] : measurements.items()) {
    if (kind.starts_with(kRail) && is_list_of_pairs(list)) {
      add(kind, "TCP over " + html_escape(kind.substr(kRail.size())));
    }
  }
  for (const auto& rail : rails_in(measurements)) {
    add("verbs", rail.empty() ? "RDMA" : "RDMA over " + html_escape(rail), rail);
  }
  add("nccl", "NCCL");
  add("mpi", "MPI");
  return ways;
}

std::string heat_map(const Speeds& speeds, const Way& way) {
  std::size_t longest = 4;
  for (const auto& node : speeds.nodes) longest = std::max(longest, node.size());
  const double left = 7.5 * static_cast<double>(longest) + 10;
  const double side = kCell * static_cast<double>(speeds.nodes.size());
  std::string svg = fmt::format(
      "<div class=\"scroll\"><svg class=\"map\" role=\"img\" aria-labelledby=\"{0}-t {0}-d\" "
      "style=\"width:{1:.0f}px;min-width:{1:.0f}px\" viewBox=\"0 0 {1:.0f} {2:.0f}\">\n"
      "<title id=\"{0}-t\">Speed of every pair over {3}</title>\n"
      "<desc id=\"{0}-d\">Rows send, columns receive; the median is {4:.3g} GB/s. The table below "
      "has the same numbers.</desc>\n",
      way.id, left + side + 10, side + kCell + 6, way.title, speeds.median);
  for (std::size_t row = 0; row < speeds.nodes.size(); ++row) {
    svg += fmt::format("<text class=\"end\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n", left - 6,
                       kCell * static_cast<double>(row + 1) + 14, html_escape(speeds.nodes[row]));
    svg += fmt::format("<text class=\"middle\" x=\"{:.0f}\" y=\"14\">{}</text>\n",
                       left + kCell * static_cast<double>(row) + 10, row + 1);
    for (std::size_t column = 0; column < speeds.nodes.size(); ++column) {
      if (column != row) svg += cell(speeds, row, column, left);
    }
  }
  return svg + "</svg></div>\n";
}

std::string legend() {
  std::string html = "<ul class=\"keys\">\n";
  double from = 0;
  for (const auto& [below, color] : kShades) {
    html += fmt::format("<li><i style=\"background:{}\"></i>{}</li>\n", color,
                        below > 10 ? fmt::format("at least {:.0f} % of the median", 100 * from)
                                   : fmt::format("less than {:.0f} %", 100 * below));
    from = below;
  }
  return html + "<li><i style=\"background:var(--grid)\"></i>not measured</li></ul>\n";
}

// Sorted by speed, slowest first.
std::string pair_table(const Speeds& speeds) {
  std::vector<std::pair<double, std::pair<std::string, std::string>>> rows;
  for (const auto& [pair, speed] : speeds.from_to) rows.emplace_back(speed, pair);
  std::sort(rows.begin(), rows.end());
  std::string html =
      "<details><summary>As a table, slowest first</summary>\n<table><thead><tr>"
      "<th scope=\"col\">from</th><th scope=\"col\">to</th><th scope=\"col\">GB/s</th></tr>"
      "</thead><tbody>\n";
  for (std::size_t i = 0; i < std::min(rows.size(), kMaxRows); ++i) {
    html += fmt::format("<tr><td>{}</td><td>{}</td><td>{:.3g}</td></tr>\n",
                        html_escape(rows[i].second.first), html_escape(rows[i].second.second),
                        rows[i].first);
  }
  return html + "</tbody></table></details>\n";
}

std::string pair_section(const json& report, const Way& way) {
  const Speeds speeds = speeds_of(report, report.at("measurements").at(way.kind), way.rail);
  std::string html =
      fmt::format("<section id=\"{}\">\n<h2>Pairs over {}</h2>\n", way.id, way.title);
  if (speeds.nodes.size() > kMaxInMap) {
    html += fmt::format("<p>{} nodes are too many for a heat map.</p>\n", speeds.nodes.size());
  } else {
    html += heat_map(speeds, way) + legend();
  }
  return html + pair_table(speeds) + "</section>\n";
}

std::string finding_rows(const json& report) {
  std::string html;
  for (const auto& finding : report.at("findings")) {
    const std::string severity = finding.at("severity");
    if (severity == "OK") continue;
    const auto& subject = finding.at("subject");
    std::string who = subject.at("node").get<std::string>();
    for (const char* key : {"peer", "device"}) {
      const std::string more = subject.at(key);
      if (!more.empty()) who += " " + more;
    }
    html += "<tr>";
    for (const std::string& text :
         {severity, who, finding.at("check").get<std::string>(),
          finding.at("evidence").get<std::string>(), finding.at("action").get<std::string>()}) {
      html += fmt::format("<td>{}</td>", html_escape(text));
    }
    html += "</tr>\n";
  }
  return html;
}

std::string finding_section(const json& report) {
  const std::string rows = finding_rows(report);
  std::string html = "<section id=\"findings\">\n<h2>Findings</h2>\n";
  if (rows.empty()) return html + "<p>No problems found.</p>\n</section>\n";
  html += "<div class=\"scroll\"><table><thead><tr>";
  for (const char* heading : {"severity", "about", "check", "evidence", "what to do"}) {
    html += fmt::format("<th scope=\"col\">{}</th>", heading);
  }
  return html + "</tr></thead><tbody>\n" + rows + "</tbody></table></div>\n</section>\n";
}

}  // namespace

std::string check_page(const json& report) {
  std::string pairs;
  for (const auto& way : ways_of(report.at("measurements"))) pairs += pair_section(report, way);
  const std::string title = fmt::format("Check of {} nodes", report.at("nodes").size());
  return fmt::format(
             "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
             "<title>{0}</title>\n<style>{1}{2}</style>\n</head>\n<body><main>\n<header>\n"
             "<p class=\"kind\">ddp-check {3}</p>\n<h1>{0}</h1>\n<p class=\"verdict\">{4}</p>\n"
             "</header>\n",
             html_escape(title), style_sheet(), kMapStyle,
             html_escape(report.at("command").get<std::string>()),
             html_escape(report.at("verdict").get<std::string>())) +
         finding_section(report) + pairs + "</main></body></html>\n";
}

}  // namespace ddp::report
