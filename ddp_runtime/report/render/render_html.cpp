// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ddp_runtime/report/record/phase.h"
#include "ddp_runtime/report/render/escape.h"
#include "ddp_runtime/report/render/render.h"
#include "ddp_runtime/report/render/style.h"
#include "ddp_runtime/report/render/svg.h"

namespace ddp::report {
namespace {

std::string element(const char* name, const char* style, std::string_view text) {
  if (text.empty()) return "";
  return fmt::format("<{0} class=\"{1}\">{2}</{0}>\n", name, style, html_escape(text));
}

std::string head(const Document& document) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n",
      html_escape(document.title), style_sheet());
}

std::string header(const Document& document) {
  std::string html = "<header>\n";
  html += element("p", "kind", "ddp-report " + document.kind);
  html += fmt::format("<h1>{}</h1>\n", html_escape(document.title));
  html += element("p", "verdict", document.verdict);
  html += element("p", "advice", document.advice);
  if (!document.cautions.empty()) {
    html += "<ul class=\"cautions\">\n";
    for (const auto& caution : document.cautions) {
      html += fmt::format("<li>{}</li>\n", html_escape(caution));
    }
    html += "</ul>\n";
  }
  return html + "</header>\n";
}

std::string tiles(const Document& document) {
  if (document.figures.empty()) return "";
  std::string html = "<div class=\"tiles\">\n";
  for (const auto& [name, value, note] : document.figures) {
    html += fmt::format(
        "<dl class=\"tile\" style=\"margin:0\"><dt>{}</dt><dd class=\"value\">{}</dd>"
        "<dd class=\"note\">{}</dd></dl>\n",
        html_escape(name), html_escape(value), html_escape(note));
  }
  return html + "</div>\n";
}

std::string facts(const Document& document) {
  if (document.facts.empty()) return "";
  std::string html = "<section id=\"facts\">\n<h2>Configuration</h2>\n<dl class=\"facts\">\n";
  for (const auto& [name, value] : document.facts) {
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", html_escape(name),
                        html_escape(value.empty() ? "–" : value));
  }
  return html + "</dl>\n</section>\n";
}

std::string legend_of(const RankChart& chart) {
  if (chart.ideal.size() < 2) return "";
  return "<ul class=\"legend\"><li><i class=\"line\"></i>measured</li>"
         "<li><i class=\"line dashed\"></i>ideal</li></ul>\n";
}

// The stacking order of segments.
std::size_t place_of(const std::string& kind) {
  if (kind == "kept") return 0;
  for (std::size_t place = 0; place < kPhaseNames.size(); ++place) {
    if (kPhaseNames[place].key == kind) return 1 + place;
  }
  return 1 + kPhases;
}

// Lists each kind of segment once. `bars` have segments.
template <class Bars>
std::string legend_of_kinds(const Bars& bars) {
  std::vector<std::pair<std::string, std::string>> kinds;
  for (const auto& bar : bars) {
    for (const auto& segment : bar.segments) {
      const std::pair kind(segment.kind, segment.name);
      if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
    }
  }
  std::stable_sort(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) {
    return place_of(a.first) < place_of(b.first);
  });
  std::string html = "<ul class=\"legend\">";
  for (const auto& [kind, name] : kinds) {
    html += fmt::format("<li><i class=\"k-{}\"></i>{}</li>", kind, html_escape(name));
  }
  return html + "</ul>\n";
}

std::string legend_of(const BarChart& chart) {
  return chart.named_segments ? "" : legend_of_kinds(chart.bars);
}

std::string legend_of(const StripChart& chart) {
  return legend_of_kinds(chart.parts);
}

std::string figure(const Chart& chart, const std::string& id) {
  return std::visit(
      [&id](const auto& c) {
        return fmt::format("<figure>\n<h3>{}</h3>\n{}{}</figure>\n", html_escape(c.title),
                           legend_of(c), svg_of(c, id));
      },
      chart);
}

std::string row_of(const std::vector<Cell>& cells, const std::vector<Column>& columns) {
  std::string html = "<tr>";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const char* name = i == 0 ? "th" : "td";
    const char* scope = i == 0 ? " scope=\"row\"" : "";
    const char* style = columns[i].show == Show::text ? "" : " class=\"num\"";
    html += fmt::format("<{0}{1}{2}>{3}</{0}>", name, scope, style,
                        html_escape(text_of(cells[i], columns[i].show)));
  }
  return html + "</tr>\n";
}

std::string table_of(const Section& section) {
  const Table& table = section.table;
  if (table.rows.empty()) return "";
  std::string html =
      fmt::format("<div class=\"scroll\"><table id=\"{}-table\">\n<thead><tr>", section.id);
  for (const auto& column : table.columns) {
    html +=
        fmt::format("<th scope=\"col\"{}>{}</th>",
                    column.show == Show::text ? "" : " class=\"num\"", html_escape(column.heading));
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const auto& cells : table.rows) html += row_of(cells, table.columns);
  return html + "</tbody>\n</table></div>\n";
}

std::string section_of(const Section& section) {
  std::string html =
      fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n", section.id, html_escape(section.heading));
  for (const auto& paragraph : section.paragraphs) {
    html += fmt::format("<p>{}</p>\n", html_escape(paragraph));
  }
  std::string charts;
  for (std::size_t i = 0; i < section.charts.size(); ++i) {
    charts += figure(section.charts[i], fmt::format("{}-{}", section.id, i));
  }
  // A single small chart leaves room for its table beside it.
  const bool beside =
      section.charts.size() == 1 && std::holds_alternative<RankChart>(section.charts.front());
  if (beside) {
    html += fmt::format("<div class=\"beside\">\n{}{}</div>\n", charts, table_of(section));
  } else {
    const bool wide =
        !section.charts.empty() && !std::holds_alternative<RankChart>(section.charts.front());
    if (!charts.empty()) {
      html += fmt::format("<div class=\"charts{}\">\n{}</div>\n", wide ? " wide" : "", charts);
    }
    html += table_of(section);
  }
  return html + "</section>\n";
}

std::string glossary(const Document& document) {
  if (document.glossary.empty()) return "";
  std::string html = "<section id=\"glossary\">\n<h2>Glossary</h2>\n<dl class=\"glossary\">\n";
  for (const auto& [word, meaning] : document.glossary) {
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", html_escape(word), html_escape(meaning));
  }
  return html + "</dl>\n</section>\n";
}

}  // namespace

std::string to_html(const Document& document) {
  std::string html = head(document) + "<body>\n<main>\n" + header(document) + tiles(document);
  for (const auto& section : document.sections) html += section_of(section);
  html += facts(document) + glossary(document);
  html += fmt::format("<footer>{}</footer>\n", html_escape(document.program));
  return html + "</main>\n</body>\n</html>\n";
}

}  // namespace ddp::report
