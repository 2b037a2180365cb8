"use strict";

// Draws the chart of a series with Bokeh in place of the one that the server drew, and keeps the stretch that is
// looked at in the address. The figures come from this service; the links below the chart lead to the same.

const SETTLED_MS = 400;
const DASHES = ["solid", "dashed", "dotdash", "dotted", "dashdot"];
const FRAME = 280;
const SHAPES = ["circle", "square", "triangle", "diamond", "cross"];

const place = document.getElementById("chart");
const drawn = document.getElementById("drawn");
const dark = matchMedia("(prefers-color-scheme: dark)");
const { Plotting } = Bokeh;

let data = null;
let timer = 0;

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const tint = (number) => color(`curve-${(number % 5) + 1}`);

// Bokeh's time axis knows one zone. It is given the clock of who looks at it.
const local = (at) => at - new Date(at).getTimezoneOffset() * 60000;
const moment = (at) => new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

const width = () => place.parentElement.clientWidth;

const late = (at) => {
  const all = data.curves.flatMap((curve) => [curve.at[0], curve.at.at(-1)]).filter((end) => end !== undefined);
  return at > (Math.min(...all) + Math.max(...all)) / 2;
};

function amount(value, unit) {
  if (unit !== "B") return `${value.toPrecision(value >= 100 ? 4 : 3)} s`;
  const power = value >= 2 ** 30 ? 3 : value >= 2 ** 20 ? 2 : value >= 2 ** 10 ? 1 : 0;
  return `${(value / 2 ** (10 * power)).toPrecision(3)} ${["B", "KiB", "MiB", "GiB"][power]}`;
}

function spread(curve, index) {
  const said = amount(curve.value[index], curve.unit);
  const within = `${amount(curve.low[index], curve.unit)} to ${amount(curve.high[index], curve.unit)}`;
  const several = curve.points[index] === 1 ? "" : `mean of ${curve.points[index]} points: `;
  return curve.low[index] === curve.high[index] ? several + said : `${several}${said} (${within})`;
}

// Memory is drawn in MiB: an axis of bytes has no round numbers.
const scaled = (values, unit) => (unit === "B" ? values.map((value) => value / 2 ** 20) : values);

function columns(curve) {
  return {
    at: curve.at.map(local),
    value: scaled(curve.value, curve.unit),
    low: scaled(curve.low, curve.unit),
    high: scaled(curve.high, curve.unit),
    link: curve.link,
    when: curve.at.map(moment),
    text: curve.at.map((_, index) => spread(curve, index)),
  };
}

function paint(plot) {
  const text = color("text");
  const quiet = color("quiet");
  plot.background_fill_color = plot.border_fill_color = color("back");
  plot.outline_line_color = color("line");
  for (const axis of [...plot.below, ...plot.left]) {
    axis.axis_line_color = axis.major_tick_line_color = axis.minor_tick_line_color = quiet;
    axis.major_label_text_color = axis.axis_label_text_color = text;
    axis.axis_label_text_font_style = "normal";
    axis.major_label_text_font_size = axis.axis_label_text_font_size = "13px";
  }
  for (const grid of plot.center.filter((item) => item instanceof Bokeh.Grid)) grid.grid_line_color = color("line");
  // Above the plot, where it covers no dot.
  const legend = plot.center.find((item) => item instanceof Bokeh.Legend);
  plot.center = plot.center.filter((item) => item !== legend);
  legend.background_fill_color = legend.border_line_color = color("back");
  legend.label_text_color = text;
  legend.location = "left";
  legend.margin = legend.padding = 2;
  legend.orientation = width() < 600 ? "vertical" : "horizontal";
  legend.click_policy = "hide";
  plot.add_layout(legend, "above");
}

function add_span(plot, location, dimension, dash, stroke) {
  plot.add_layout(new Bokeh.Span({ location, dimension, line_dash: dash, line_color: stroke, line_width: 1 }));
}

// Words beside an upright line stand on the side that has more room.
function add_word(plot, x, text, stroke, offset, leftwards) {
  plot.add_layout(
    new Bokeh.Label({
      x, y: offset, y_units: "screen", text, text_color: stroke, text_font_size: "12px",
      x_offset: leftwards ? -4 : 4, text_align: leftwards ? "right" : "left",
      background_fill_color: color("back"), background_fill_alpha: 0.8,
    }),
  );
}

function add_level(plot, curve, stroke) {
  if (curve.level === null) return;
  const [low, middle, high] = scaled(curve.level, curve.unit);
  plot.add_layout(new Bokeh.BoxAnnotation({
    bottom: low, top: high, fill_color: stroke, fill_alpha: 0.08, line_color: stroke, line_alpha: 0.4, line_dash: "dotted",
    level: "underlay",
  }));
  add_span(plot, middle, "width", "dashed", stroke);
}

function add_curve(plot, curve, number) {
  // What is pointed at is drawn by itself, and a line of which that is so not at all: the dots have a source of their own.
  const [source, behind] = [columns(curve), columns(curve)].map((data) => new Bokeh.ColumnDataSource({ data }));
  const stroke = tint(number);
  plot.segment({ field: "at" }, { field: "low" }, { field: "at" }, { field: "high" },
    { source: behind, line_color: stroke, line_alpha: 0.5, line_width: 2 });
  plot.line({ field: "at" }, { field: "value" },
    { source: behind, line_color: stroke, line_width: 1.5, line_dash: DASHES[number % DASHES.length],
      legend_label: curve.label });
  const dots = plot.scatter({ field: "at" }, { field: "value" },
    { source, line_color: stroke, fill_color: stroke, marker: SHAPES[number % SHAPES.length],
      size: curve.at.length * 8 > width() ? 5 : 8, legend_label: curve.label });
  source.selected.properties.indices.change.connect(() => {
    const [index] = source.selected.indices;
    if (index !== undefined) location.assign(source.data.link[index]);
  });
  add_level(plot, curve, stroke);
  for (const step of curve.steps) {
    add_span(plot, local(step.at), "height", "dotted", stroke);
    add_word(plot, local(step.at), `◆ ${step.text}`, stroke, 4, late(step.at));
  }
  return { curve, sources: [source, behind], dots };
}

function build(unit, numbered, x_range) {
  const heights = numbered.flatMap(([curve]) => curve.low);
  const logarithmic = data.logarithmic && heights.every((value) => value > 0);
  const plot = Plotting.figure({
    frame_height: FRAME, sizing_mode: "stretch_width", min_border_left: 70, tools: "xpan,xbox_zoom,xwheel_zoom,tap,reset", toolbar_location: "above",
    x_axis_type: "datetime", y_axis_type: logarithmic ? "log" : "linear", ...(x_range ? { x_range } : {}),
  });
  plot.toolbar.logo = null;
  const curves = numbered.map(([curve, number]) => add_curve(plot, curve, number));
  const hover = new Bokeh.HoverTool({
    renderers: curves.map((item) => item.dots), tooltips: [["", "@when"], ["", "@text"]],
  });
  plot.toolbar.tools = [...plot.toolbar.tools, hover];
  data.versions.forEach((mark, index) => {
    add_span(plot, local(mark.at), "height", "solid", color("quiet"));
    add_word(plot, local(mark.at), mark.text, color("text"), FRAME - 20 - 18 * (index % 3), late(mark.at));
  });
  plot.left[0].formatter = new Bokeh.BasicTickFormatter({ use_scientific: false });
  plot.left[0].axis_label = unit === "B" ? "MiB" : "seconds";
  if (width() < 600) plot.below[0].ticker.desired_num_ticks = 3;
  paint(plot);
  return { plot, curves };
}

function draw() {
  const numbered = data.curves.map((curve, number) => [curve, number]).filter(([curve]) => curve.at.length > 0);
  const units = [...new Set(numbered.map(([curve]) => curve.unit))];
  const built = [];
  for (const unit of units) {
    built.push(build(unit, numbered.filter(([curve]) => curve.unit === unit), built[0]?.plot.x_range));
  }
  place.replaceChildren();
  drawn.hidden = built.length > 0;
  place.hidden = built.length === 0;
  if (built.length === 0) return;
  Plotting.show(built.map((item) => item.plot), place);
  follow(built);
}

function source_of(since, until) {
  const address = new URL(place.dataset.source, location.href);
  if (since !== null) address.searchParams.set("since", new Date(since).toISOString());
  if (until !== null) address.searchParams.set("until", new Date(until).toISOString());
  return address;
}

async function fetched(address) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`HTTP ${response.status}`);
  return response.json();
}

// The stretch that is looked at goes into the address, and dots that stand for several points come apart.
function follow(built) {
  const { x_range } = built[0].plot;
  const settled = async () => {
    const global = (at) => at + new Date(at).getTimezoneOffset() * 60000;
    const [since, until] = [global(x_range.start), global(x_range.end)];
    const address = new URL(location.href);
    for (const [name, at] of [["since", since], ["until", until]]) {
      address.searchParams.set(name, new Date(at).toISOString().slice(0, 16) + "Z");
    }
    history.replaceState(null, "", address);
    if (!data.thinned) return;
    const finer = await fetched(source_of(since, until));
    for (const { curves } of built) {
      for (const item of curves) {
        const curve = finer.curves.find((other) => other.figure === item.curve.figure);
        if (curve) for (const source of item.sources) source.data = columns(curve);
      }
    }
  };
  const changed = () => {
    clearTimeout(timer);
    timer = setTimeout(settled, SETTLED_MS);
  };
  // What Bokeh sets as it lays the plot out is nobody's wish.
  setTimeout(() => {
    x_range.properties.start.change.connect(changed);
    x_range.properties.end.change.connect(changed);
  }, 1000);
}

async function start() {
  data = await fetched(source_of(null, null));
  draw();
  dark.addEventListener("change", draw);
}

// Without it the server's drawing stays.
start().catch((error) => console.warn(`the chart stays as the server drew it: ${error}`));
