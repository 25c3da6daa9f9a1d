// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/render/escape.h"
#include "ddp_runtime/report/render/render.h"

namespace ddp::report {
namespace {

std::string line_of(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const auto& cell : cells) line += " " + cell + " |";
  return line + "\n";
}

std::string markdown_table(const Table& table) {
  if (table.rows.empty()) return "";
  std::vector<std::string> headings;
  std::vector<std::string> rules;
  for (const auto& column : table.columns) {
    headings.push_back(markdown_escape(column.heading));
    rules.emplace_back(column.show == Show::text ? "---" : "---:");
  }
  std::string text = line_of(headings) + line_of(rules);
  for (const auto& cells : table.rows) {
    std::vector<std::string> row;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      row.push_back(markdown_escape(text_of(cells[i], table.columns[i].show)));
    }
    text += line_of(row);
  }
  return text + "\n";
}

}  // namespace

std::string to_markdown(const Document& document) {
  std::string text = "# " + markdown_escape(document.title) + "\n\n";
  text += "**" + markdown_escape(document.verdict) + "**\n\n";
  if (!document.advice.empty()) text += markdown_escape(document.advice) + "\n\n";
  for (const auto& caution : document.cautions) text += "> " + markdown_escape(caution) + "\n\n";
  for (const auto& [name, value] : document.facts) {
    text += "- " + markdown_escape(name) + ": " + markdown_escape(value) + "\n";
  }
  for (const auto& section : document.sections) {
    text += "\n## " + markdown_escape(section.heading) + "\n\n";
    for (const auto& paragraph : section.paragraphs) text += markdown_escape(paragraph) + "\n\n";
    text += markdown_table(section.table);
  }
  return text;
}

}  // namespace ddp::report
