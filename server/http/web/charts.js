// Line charts over steps, in the colours of the page.

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// One chart; `series` are [{label, color: "--c1", dashed, points}], each with points [{x, y}] that draw()
// gets later. `format` writes a value of the y axis.
export class LineChart {
  constructor(canvas, series, format) {
    this.series = series;
    const axis = {grid: {color: color("--line")}, ticks: {color: color("--soft"), maxTicksLimit: 6}};
    this.chart = new window.Chart(canvas, {
      type: "line",
      data: {datasets: series.map((one) => ({
        label: one.label, data: [], parsing: false, borderColor: color(one.color),
        backgroundColor: color(one.color), borderWidth: one.marks ? 1 : 1.8,
        borderDash: one.dashed ? [5, 4] : [], pointRadius: one.marks ? 3 : 0, pointHitRadius: 8,
        tension: 0}))},
      options: {
        animation: false, maintainAspectRatio: false, normalized: true,
        interaction: {mode: "nearest", axis: "x", intersect: false},
        scales: {
          x: {...axis, type: "linear", ticks: {...axis.ticks, precision: 0},
            title: {display: true, text: "step", color: color("--soft")}},
          y: {...axis, grace: "5%", ticks: {...axis.ticks, callback: (value) => format(value)}},
        },
        plugins: {
          legend: {align: "end", labels: {color: color("--soft"), boxWidth: 12, boxHeight: 2}},
          tooltip: {callbacks: {
            title: (items) => `step ${items[0]?.parsed.x}`,
            label: (item) => `${item.dataset.label}: ${format(item.parsed.y)}`}},
        },
      },
    });
  }

  // One list of points for each series; values that are not finite are gaps.
  draw(lists) {
    lists.forEach((points, i) => {
      this.chart.data.datasets[i].data =
        points.map(({x, y}) => ({x, y: Number.isFinite(y) ? y : NaN}));
    });
    this.chart.update("none");
  }

  destroy() { this.chart.destroy(); }
}
