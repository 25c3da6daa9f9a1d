// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/render/style.h"

namespace ddp::report {

// The phases use the colors of Okabe and Ito, which can be distinguished with any kind of color
// vision; each has the text color with the best contrast.
std::string_view style_sheet() noexcept {
  return R"css(
:root {
  color-scheme: light dark;
  --page: #f4f5f7; --surface: #ffffff; --ink: #1b1f24; --muted: #59636e; --rule: #d8dde3;
  --grid: #e7eaee; --accent: #0b5cad; --ideal: #7d8791; --caution: #fff6e0; --caution-rule: #d9a400;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0f1216; --surface: #181c22; --ink: #e8ebef; --muted: #a3adb8; --rule: #343b44;
    --grid: #272d35; --accent: #6cb2ff; --ideal: #8b949e; --caution: #2b2413; --caution-rule: #b88a00;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
main { max-width: 1060px; margin: 0 auto; padding: 32px 24px 48px; }
header { margin-bottom: 24px; }
.kind { margin: 0; color: var(--muted); font-size: 13px; letter-spacing: .04em; text-transform: uppercase; }
h1 { margin: 2px 0 12px; font-size: 28px; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 0 0 8px; font-size: 19px; }
h3 { margin: 0 0 4px; font-size: 14px; color: var(--muted); font-weight: 600; }
.verdict { margin: 0 0 8px; font-size: 18px; line-height: 1.4; overflow-wrap: anywhere; }
.advice { margin: 0; color: var(--muted); }
.cautions { margin: 16px 0 0; padding: 10px 16px; list-style: none; background: var(--caution);
  border-left: 4px solid var(--caution-rule); border-radius: 4px; overflow-wrap: anywhere; }
.cautions li + li { margin-top: 6px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 14px; margin-bottom: 16px; }
.tile, section { background: var(--surface); border: 1px solid var(--rule); border-radius: 10px; }
.tile { padding: 14px 18px; }
.tile dt { color: var(--muted); font-size: 13px; }
.tile dd { margin: 0; }
.tile .value { font-size: 27px; font-weight: 650; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tile .note { color: var(--muted); font-size: 13px; overflow-wrap: anywhere; }
section { padding: 20px 24px; margin-bottom: 16px; }
section p { margin: 0 0 12px; color: var(--muted); max-width: 75ch; overflow-wrap: anywhere; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(340px, 100%), 1fr)); gap: 4px 24px; margin: 0; }
.facts div { display: flex; gap: 10px; min-width: 0; }
.facts dt { flex: 0 0 180px; color: var(--muted); overflow-wrap: anywhere; }
.facts dd { margin: 0; min-width: 0; overflow-wrap: anywhere; }
.glossary dt { font-weight: 600; }
.glossary dd { margin: 0 0 6px; color: var(--muted); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(400px, 100%), 1fr)); gap: 12px 24px; margin-bottom: 14px; }
.beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(400px, 100%), 1fr)); gap: 12px 32px; align-items: center; }
.charts.wide { grid-template-columns: minmax(0, 1fr); gap: 20px; }
figure { margin: 0; min-width: 0; }
svg { display: block; width: 100%; height: auto; }
svg text { font-size: 12.5px; fill: var(--ink); }
svg .tick, svg .name { fill: var(--muted); }
svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; }
svg .label { font-weight: 600; paint-order: stroke; stroke: var(--surface); stroke-width: 4px; stroke-linejoin: round; }
svg .grid { stroke: var(--grid); }
svg .axis { stroke: var(--muted); }
svg .ideal { stroke: var(--ideal); stroke-width: 1.5; stroke-dasharray: 6 5; fill: none; }
svg .measured { stroke: var(--accent); stroke-width: 2.5; fill: none; stroke-linejoin: round; }
svg .whisker { stroke: var(--accent); stroke-width: 1.5; }
svg .dot { fill: var(--accent); stroke: var(--surface); stroke-width: 1.5; }
svg .seg { stroke: var(--surface); stroke-width: 1; }
svg .inside { font-weight: 600; fill: #111; }
svg .on-backward, svg .on-outside, svg .on-kept { fill: #fff; }
.k-data { fill: #e69f00; --k: #e69f00; } .k-forward { fill: #56b4e9; --k: #56b4e9; }
.k-backward { fill: #0072b2; --k: #0072b2; } .k-exposed_comm { fill: #e2682a; --k: #e2682a; }
.k-waiting { fill: #f4b6a0; --k: #f4b6a0; }
.k-optimizer { fill: #19a97f; --k: #19a97f; } .k-checkpoint { fill: #cc79a7; --k: #cc79a7; }
.k-other { fill: #b3b3b3; --k: #b3b3b3; } .k-unaccounted { fill: #e3d26f; --k: #e3d26f; }
.k-outside { fill: #7a5c99; --k: #7a5c99; } .k-kept { fill: #55697d; --k: #55697d; }
svg .part { fill: var(--grid); stroke: var(--surface); stroke-width: 1; }
svg .mark { fill: #c62828; }
svg .on-use-productive, svg .on-use-checkpoint_stall { fill: #fff; }
.k-use-productive { fill: #0072b2; --k: #0072b2; } .k-use-repeat { fill: #e2682a; --k: #e2682a; }
.k-use-detect { fill: #f4b6a0; --k: #f4b6a0; } .k-use-stop { fill: #cc79a7; --k: #cc79a7; }
.k-use-launch { fill: #e69f00; --k: #e69f00; } .k-use-load { fill: #56b4e9; --k: #56b4e9; }
.k-use-checkpoint_stall { fill: #7a5c99; --k: #7a5c99; } .k-use-degraded { fill: #19a97f; --k: #19a97f; }
.k-use-waiting { fill: #e3d26f; --k: #e3d26f; } .k-use-queue { fill: #d8dde3; --k: #d8dde3; }
.k-use-other { fill: #b3b3b3; --k: #b3b3b3; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0 0 6px; padding: 0; list-style: none; font-size: 13px; }
.legend li { display: flex; align-items: center; gap: 6px; }
.legend i { width: 13px; height: 13px; border-radius: 3px; background: var(--k, none); flex: none; }
.legend i.line { height: 0; width: 22px; border-radius: 0; border-top: 2.5px solid var(--accent); background: none; }
.legend i.dashed { border-top: 2px dashed var(--ideal); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--muted); font-size: 12.5px; padding-bottom: 4px; }
th, td { padding: 5px 9px; border-bottom: 1px solid var(--rule); text-align: left; vertical-align: top; overflow-wrap: break-word; }
thead th { color: var(--muted); font-weight: 600; border-bottom-width: 2px; vertical-align: bottom; }
tbody th { font-weight: 600; }
tbody tr:last-child > * { border-bottom: 0; }
.num { text-align: right; white-space: nowrap; }
thead .num { white-space: normal; }
footer { color: var(--muted); font-size: 13px; }
@media (max-width: 640px) {
  .charts.wide figure { overflow-x: auto; }
  .charts.wide svg { min-width: 640px; }
}
@media print {
  :root { --page: #fff; --surface: #fff; --ink: #000; --muted: #444; --rule: #bbb; --grid: #ddd; --accent: #004c99; --ideal: #777; --caution: #fff; }
  body { font-size: 11px; }
  main { max-width: none; padding: 0; }
  section, .tile { break-inside: avoid; border-color: #bbb; }
  .scroll { overflow: visible; }
  svg .seg, .legend i { print-color-adjust: exact; }
}
)css";
}

}  // namespace ddp::report
