// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/analysis/growth_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "ddp_runtime/report/analysis/sample.h"
#include "ddp_runtime/report/analysis/student.h"
#include "ddp_runtime/report/document/format.h"

namespace ddp::report {
namespace {

using Vector = std::vector<double>;

double value_of(Term term, double ranks) {
  switch (term) {
    case Term::inverse:
      return 1 / ranks;
    case Term::ring:
      return (ranks - 1) / ranks;
    case Term::logarithm:
      return std::log2(ranks);
    case Term::root:
      return std::sqrt(ranks);
    case Term::linear:
      return ranks - 1;
    case Term::constant:
      break;
  }
  return 1;
}

double product(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

void subtract(Vector& from, const Vector& what, double times) {
  for (std::size_t i = 0; i < from.size(); ++i) from[i] -= times * what[i];
}

// Solves R x = y, upper triangular.
Vector solved(const std::vector<Vector>& factor, Vector y) {
  for (std::size_t i = y.size(); i-- > 0;) {
    for (std::size_t j = i + 1; j < y.size(); ++j) y[i] -= factor[i][j] * y[j];
    y[i] /= factor[i][i];
  }
  return y;
}

// Solves R^T x = y.
Vector solved_transposed(const std::vector<Vector>& factor, Vector y) {
  for (std::size_t i = 0; i < y.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) y[i] -= factor[j][i] * y[j];
    y[i] /= factor[i][i];
  }
  return y;
}

// Least squares by modified Gram-Schmidt. nullopt if the points do not determine the coefficients,
// or if one is not positive: the model without its term covers that. A single one may be 0.
std::optional<GrowthModel> fitted(std::span<const TimePoint> points,
                                  const std::vector<Term>& terms) {
  constexpr double kDependent = 1e-6;
  const std::size_t count = terms.size();
  if (points.size() <= count) return std::nullopt;
  GrowthModel model;
  model.terms = terms;
  model.factor.assign(count, Vector(count, 0));
  std::vector<Vector> columns(count);
  Vector rest;
  for (const auto& point : points) {
    for (std::size_t i = 0; i < count; ++i) {
      columns[i].push_back(value_of(terms[i], point.ranks) / point.error);
    }
    rest.push_back(point.seconds / point.error);
  }
  Vector right(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double before = std::sqrt(product(columns[i], columns[i]));
    for (std::size_t j = 0; j < i; ++j) {
      model.factor[j][i] = product(columns[j], columns[i]);
      subtract(columns[i], columns[j], model.factor[j][i]);
    }
    const double length = std::sqrt(product(columns[i], columns[i]));
    if (!(length > kDependent * before)) return std::nullopt;
    model.factor[i][i] = length;
    for (auto& value : columns[i]) value /= length;
    right[i] = product(columns[i], rest);
    subtract(rest, columns[i], right[i]);
  }
  model.coefficients = solved(model.factor, right);
  for (const double coefficient : model.coefficients) {
    const bool fits = coefficient > 0 || (count == 1 && coefficient == 0);
    if (!fits || !std::isfinite(coefficient)) return std::nullopt;
  }
  model.squares = product(rest, rest);
  model.degrees = static_cast<double>(points.size() - count);
  return model;
}

// Akaike's criterion for few points: less is better.
double criterion(const GrowthModel& model, std::size_t points) {
  const auto n = static_cast<double>(points);
  const auto parameters = static_cast<double>(model.terms.size() + 1);  // with the error's size
  if (n <= parameters + 1) return std::numeric_limits<double>::infinity();
  constexpr double kExact = 1e-18;  // points that lie on the curve
  return n * std::log(model.squares / n + kExact) + 2 * parameters +
         2 * parameters * (parameters + 1) / (n - parameters - 1);
}

// Whether the residuals are not significantly larger than those of the best model (an F test with
// one degree of freedom, at 2 %).
bool is_admissible(const GrowthModel& model, const GrowthModel& best) {
  const double t = student_99th(best.degrees);
  return model.squares <= best.squares * (1 + t * t / best.degrees) + 1e-18;
}

// The normal score of an F ratio (Paulson's approximation): 2.33 is its 99th percentile.
double score_of_ratio(double ratio, double degrees, double degrees_below) {
  const double a = 2 / (9 * degrees);
  const double b = 2 / (9 * degrees_below);
  const double root = std::cbrt(ratio);
  return ((1 - b) * root - (1 - a)) / std::sqrt(b * root * root + a);
}

// See Note [Lack of fit]. With too few repetitions, the answer is yes.
bool agrees(const GrowthModel& model, std::span<const TimePoint> points) {
  constexpr double kLeastRepetitions = 3;
  constexpr double kScore99th = 2.326;
  constexpr double kExact = 1e-12;  // relative squared deviation of rounding
  std::map<int, Vector> sizes;
  for (const auto& point : points) sizes[point.ranks].push_back(point.seconds / point.error);
  double chance = 0;
  for (const auto& [ranks, values] : sizes) chance += sample_of(values).squares;
  const auto count = static_cast<double>(sizes.size());
  const double repetitions = static_cast<double>(points.size()) - count;
  const double degrees = count - static_cast<double>(model.terms.size());
  if (degrees < 1 || repetitions < kLeastRepetitions) return true;
  const double misfit = (model.squares - chance) / degrees;
  if (misfit < kExact) return true;
  const double noise = std::max(chance / repetitions, kExact);
  return score_of_ratio(misfit / noise, degrees, repetitions) < kScore99th;
}

std::string text_of(Term term) {
  switch (term) {
    case Term::inverse:
      return " / N";
    case Term::ring:
      return " (N - 1) / N";
    case Term::logarithm:
      return " log2(N)";
    case Term::root:
      return " sqrt(N)";
    case Term::linear:
      return " (N - 1)";
    case Term::constant:
      break;
  }
  return "";
}

}  // namespace

double GrowthModel::at(double ranks) const {
  double sum = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) sum += coefficients[i] * value_of(terms[i], ranks);
  return sum;
}

Interval GrowthModel::interval_at(double ranks) const {
  Vector row;
  row.reserve(terms.size());
  for (const Term term : terms) row.push_back(value_of(term, ranks));
  const Vector spread = solved_transposed(factor, std::move(row));
  const double half =
      student_95th(degrees) * std::sqrt(squares / degrees * product(spread, spread));
  return {at(ranks) - half, at(ranks) + half};
}

Interval GrowthFit::interval_at(double ranks) const {
  Interval all = best.interval_at(ranks);
  for (const auto& model : admissible) {
    const auto one = model.interval_at(ranks);
    all = {std::min(all.least, one.least), std::max(all.most, one.most)};
  }
  return {std::max(all.least, 0.0), all.most};
}

std::optional<GrowthFit> fit_growth(std::span<const TimePoint> points,
                                    std::span<const std::vector<Term>> models) {
  std::vector<GrowthModel> possible;
  for (const auto& terms : models) {
    if (auto model = fitted(points, terms)) possible.push_back(std::move(*model));
  }
  std::erase_if(possible, [&](const GrowthModel& model) {
    return !std::isfinite(criterion(model, points.size()));
  });
  if (possible.empty()) return std::nullopt;
  GrowthFit fit;
  fit.best = *std::min_element(possible.begin(), possible.end(),
                               [&](const GrowthModel& a, const GrowthModel& b) {
                                 return criterion(a, points.size()) < criterion(b, points.size());
                               });
  fit.agrees = agrees(fit.best, points);
  for (auto& model : possible) {
    if (is_admissible(model, fit.best)) fit.admissible.push_back(std::move(model));
  }
  return fit;
}

std::string formula_of(const GrowthModel& model) {
  std::string text;
  for (std::size_t i = 0; i < model.terms.size(); ++i) {
    text += fmt::format("{}{} ms{}", i == 0 ? "" : " + ", milliseconds(model.coefficients[i]),
                        text_of(model.terms[i]));
  }
  return text;
}

}  // namespace ddp::report
