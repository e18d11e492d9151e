// A chart of figures over time, drawn by uPlot. The legend is our own: it shows as text the values under the pointer,
// or else the last ones, and follows the language.

import { element } from "./desk.js";
import { locale, number, say } from "./i18n.js";
import uPlot from "./uplot.js";

// kept is how many points are kept: the points that the engine has stored, and more than ten minutes at one a second.
const kept = 3000;

// shortest is the shortest time span that a chart shows, in seconds, so that the first points do not fill its whole
// width.
const shortest = 30;

const height = 180;
const font = '11px system-ui, -apple-system, "Segoe UI", sans-serif';

const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// chart draws a chart in a figure that has a .plot and a .legend. series are the keys of the words for the curves.
// add(seconds, values) adds one value for each curve, in the order of series; null makes a gap. fill(points) puts [seconds, values]
// before the first point that was added.
export function chart(figure, series) {
  const place = figure.querySelector(".plot");
  const data = [[], ...series.map(() => [])];
  let filled = 0; // how many points are of fill
  const values = series.map((key, i) => {
    const [entry, name, value] = [element("li"), element("span"), element("strong")];
    say(name, key);
    entry.dataset.series = i + 1;
    entry.append(name, value);
    figure.querySelector(".legend").append(entry);
    return value;
  });
  const tell = (at) => values.forEach((value, i) => {
    const n = data[i + 1][at];
    value.textContent = n == null ? "–" : number(Math.round(n));
  });

  const line = { stroke: () => token("--quiet"), font, grid: { stroke: () => token("--line"), width: 1 }, ticks: { show: false } };
  const plot = new uPlot({
    width: place.clientWidth || 300,
    height,
    padding: [8, 28, 0, 0], // room for half of the last time label
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, sync: { key: "console" }, points: { size: 6 } },
    scales: {
      x: { range: (_, from, to) => [Math.min(from, to - shortest), to] },
      y: { range: (_, from, to) => [0, Math.max(1, to) * 1.05] },
    },
    axes: [
      { ...line, size: 24, space: 70, values: (_, ticks) => ticks.map((seconds) => (data[0].length > 1 ? clock(seconds) : "")) },
      { ...line, size: 56, space: 30, values: (_, ticks) => ticks.map((n) => (Number.isInteger(n) ? number(n) : "")) },
    ],
    series: [{}, ...series.map((_, i) => ({ stroke: () => token(`--series-${i + 1}`), width: 2, points: { show: false } }))],
    hooks: { setCursor: [({ cursor }) => tell(cursor.idx ?? data[0].length - 1)] },
  }, data, place);

  new ResizeObserver(() => place.clientWidth > 0 && plot.setSize({ width: place.clientWidth, height })).observe(place); // 0: the view is not shown
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plot.redraw(false));

  return {
    fill(points) {
      const first = data[0][filled] ?? Infinity;
      const earlier = points.filter(([seconds]) => seconds < first);
      if (earlier.length > 0 && first < Infinity) { // up to there, nothing has changed
        earlier.push([first - 0.001, earlier.at(-1)[1]]);
      }
      data.forEach((list, i) => list.splice(0, filled, ...earlier.map(([seconds, figures]) => [seconds, ...figures][i])));
      filled = earlier.length;
      plot.setData(data);
      tell(plot.cursor.idx ?? data[0].length - 1);
    },
    add(seconds, figures) {
      [seconds, ...figures].forEach((n, i) => {
        data[i].push(n);
        if (data[i].length > kept) {
          data[i].shift();
          filled -= i === 0 && filled > 0 ? 1 : 0;
        }
      });
      plot.setData(data);
      tell(plot.cursor.idx ?? data[0].length - 1);
    },
  };
}

const clock = (seconds) => new Intl.DateTimeFormat(locale(), { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" }).format(seconds * 1000);
