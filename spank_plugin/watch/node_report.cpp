// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/node_report.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/text.h"

namespace ddp::watch {
namespace {

using std::chrono::milliseconds;

constexpr char kSeparator = '\t';
constexpr std::string_view kNever = "-";
constexpr std::string_view kRank = "rank";
constexpr std::string_view kWait = "wait";
constexpr std::uint64_t kMaxNumber = std::uint64_t{1} << 40U;

std::string text_of(const std::optional<Clock::duration>& length) {
  if (!length) return std::string(kNever);
  return std::to_string(std::chrono::duration_cast<milliseconds>(*length).count());
}

// A name of a function or file may contain anything, and so may what another process sends.
std::string printable(std::string_view text) {
  std::string result(text);
  std::ranges::replace_if(
      result, [](char c) { return !is_printable(c); }, '?');
  return result;
}

std::string line_of(const RankReport& report, const RankFacts& facts) {
  std::string line(kRank);
  for (const auto& cell :
       {std::to_string(facts.rank), std::to_string(static_cast<int>(report.state)),
        text_of(report.quiet), text_of(report.stopped), text_of(report.uninterruptible),
        std::to_string(facts.task), std::to_string(facts.stopped),
        std::to_string(static_cast<int>(report.is_alone))}) {
    line += kSeparator + cell;
  }
  return line + '\n';
}

std::string line_of(const RankWait& wait) {
  return std::string(kWait) + kSeparator + std::to_string(wait.rank) + kSeparator +
         printable(wait.channel) + kSeparator + printable(wait.place) + '\n';
}

// Reads the cells of one line in turn.
class Cells {
 public:
  explicit Cells(std::string_view line) : rest_(line) {}

  std::string_view next() {
    const auto end = rest_.find(kSeparator);
    const auto cell = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
    return cell;
  }
  // Fails if the cell is no number up to `most`.
  std::uint64_t number(std::uint64_t most = kMaxNumber) {
    const auto value = parse_decimal(next(), most);
    failed_ = failed_ || !value;
    return value.value_or(0);
  }
  std::optional<Clock::duration> length() {
    if (rest_.starts_with(kNever)) {
      next();
      return std::nullopt;
    }
    return milliseconds(number());
  }
  bool failed() const noexcept { return failed_; }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

bool add_line(std::string_view line, const std::string& node, RanksReport& ranks) {
  Cells cells(line);
  const std::string_view kind = cells.next();
  const auto rank = static_cast<std::uint32_t>(cells.number(UINT32_MAX));
  if (kind == kWait) {
    RankWait wait{rank, printable(cells.next()), {}};
    wait.place = printable(cells.next());
    ranks.waits.push_back(std::move(wait));
  } else if (kind == kRank) {
    RankReport report;
    report.state = static_cast<RankState>(cells.number(static_cast<int>(RankState::failed)));
    report.quiet = cells.length();
    report.stopped = cells.length();
    report.uninterruptible = cells.length();
    const auto task = static_cast<pid_t>(cells.number(INT32_MAX));
    const auto stopped = static_cast<pid_t>(cells.number(INT32_MAX));
    report.is_alone = cells.number(1) != 0;
    ranks.ranks.push_back(report);
    ranks.facts.push_back({rank, task, stopped, printable(node)});
  } else {
    return false;
  }
  return !cells.failed();
}

// For a text from which they are left out.
void add_unknown_waits(RanksReport& ranks) {
  for (std::size_t i = 0; i < ranks.ranks.size(); ++i) {
    const auto& report = ranks.ranks[i];
    if (report.state == RankState::running && report.quiet)
      ranks.waits.push_back({ranks.facts[i].rank, {}, {}});
  }
}

}  // namespace

void RanksReport::append(const RanksReport& others) {
  ranks.insert(ranks.end(), others.ranks.begin(), others.ranks.end());
  facts.insert(facts.end(), others.facts.begin(), others.facts.end());
  waits.insert(waits.end(), others.waits.begin(), others.waits.end());
}

bool RanksReport::sort() {
  std::vector<std::size_t> order(facts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [this](std::size_t i) { return facts[i].rank; });
  RanksReport sorted;
  for (const auto i : order) {
    sorted.ranks.push_back(ranks[i]);
    sorted.facts.push_back(std::move(facts[i]));
  }
  sorted.waits = std::move(waits);
  std::ranges::sort(sorted.waits, {}, &RankWait::rank);
  *this = std::move(sorted);
  return std::ranges::adjacent_find(facts, {}, &RankFacts::rank) == facts.end();
}

std::string to_text(const RanksReport& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.ranks.size(); ++i) {
    text += line_of(ranks.ranks[i], ranks.facts[i]);
  }
  std::string waits;
  for (const auto& wait : ranks.waits) waits += line_of(wait);
  return text.size() + waits.size() <= kMaxReportText ? text + waits : text;
}

std::optional<RanksReport> parse_report(std::string_view text, const std::string& node) {
  RanksReport ranks;
  while (!text.empty()) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos || !add_line(text.substr(0, end), node, ranks)) {
      return std::nullopt;
    }
    text.remove_prefix(end + 1);
  }
  if (ranks.waits.empty()) add_unknown_waits(ranks);
  return ranks;
}

}  // namespace ddp::watch
