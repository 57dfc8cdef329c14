// Line charts over steps, in the colours of the page.

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// One chart; `series` are [{label, color: "--c1", dashed, marks}]; draw() gets their points. `format` writes a
// value of the y axis, which has steps of powers of two if `binary`.
export class LineChart {
  constructor(canvas, series, {format, fromZero = false, binary = false}) {
    this.binary = binary;
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
          x: {...axis, type: "linear", bounds: "data", ticks: {...axis.ticks, precision: 0},
            title: {display: true, text: "step", color: color("--soft")}},
          y: {...axis, beginAtZero: fromZero, ticks: {...axis.ticks, callback: (value) => format(value)}},
        },
        plugins: {
          legend: {align: "end", labels: {
            color: color("--soft"), boxWidth: 12, boxHeight: 2,
            filter: (item, data) => data.datasets[item.datasetIndex].data.some(({y}) => Number.isFinite(y))}},
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
    if (this.binary) {
      const most = Math.max(1, ...lists.flat().map(({y}) => (Number.isFinite(y) ? y : 0)));
      this.chart.options.scales.y.ticks.stepSize = 2 ** Math.floor(Math.log2(most / 3));
    }
    this.chart.update("none");
  }

  destroy() { this.chart.destroy(); }
}
