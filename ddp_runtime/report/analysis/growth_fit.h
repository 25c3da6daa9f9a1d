// SPDX-License-Identifier: Apache-2.0
// How a time depends on the number of ranks, from measurements with a few numbers of ranks. No side
// effects.
//
// Note [Models of growth]
// A model is a sum of one to three terms with positive coefficients, such as a + b log2(N), fitted
// by least squares of the relative errors. A few measurements agree with more than one model, and
// outside of them the models differ more than each one's own error. So a fit keeps every model that
// is not significantly worse than the best one, and its interval includes the intervals of all.
// Extra-P (Calotoiu et al., SC 2013) searches models in the same way, and keeps one.
//
// Note [Lack of fit]
// The best model may still be wrong. Runs with the same number of ranks show how far chance takes a
// time from its mean. If the means are further from the best model than that explains (an F test at
// 1 %), no model here describes the growth, or the runs of one size share a disturbance, and a
// continuation would be a guess.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/report/analysis/sample.h"

namespace ddp::report {

enum class Term {
  constant,   // 1
  inverse,    // 1 / N: divided work
  ring,       // (N - 1) / N: the bytes of an all-reduce that every rank sends and receives
  logarithm,  // log2 N: the steps of a tree
  root,       // sqrt(N): the steps of a torus
  linear,     // N - 1: the steps of a ring
};

// The time of one run.
struct TimePoint {
  int ranks = 1;
  double seconds = 0;
  double error = 1;  // the size of its error relative to those of the other points; positive
};

struct GrowthModel {
  std::vector<Term> terms;
  std::vector<double> coefficients;         // seconds; one for each term, positive
  std::vector<std::vector<double>> factor;  // R of the QR decomposition, for errors
  double squares = 0;                       // sum of the squared residuals, in units of `error`
  double degrees = 0;                       // of freedom of the residuals

  double at(double ranks) const;
  // Of at(); contains the truth in 90 of 100 fits if the model is right.
  Interval interval_at(double ranks) const;
};

struct GrowthFit {
  GrowthModel best;
  std::vector<GrowthModel> admissible;  // includes the best
  bool agrees = true;  // whether the best model agrees with the points; see Note [Lack of fit]

  double at(double ranks) const { return best.at(ranks); }
  // Includes the intervals of all admissible models; never negative.
  Interval interval_at(double ranks) const;
};

// nullopt if the points are too few for any of the models.
std::optional<GrowthFit> fit_growth(std::span<const TimePoint> points,
                                    std::span<const std::vector<Term>> models);

// "4.1 ms + 0.52 ms log2(N)".
std::string formula_of(const GrowthModel& model);

}  // namespace ddp::report
