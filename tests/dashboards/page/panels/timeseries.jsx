// Grafana's time series. Its options are in the fields' own configuration, which Grafana's component reads by itself.
import { TimeSeries } from '@grafana/ui';
import { useLayoutEffect } from 'react';

export const options = ['legend', 'tooltip'];

export const defaults = {
  color: { mode: 'palette-classic' },
  custom: {
    drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, fillOpacity: 0, gradientMode: 'none', barAlignment: 0,
    barWidthFactor: 0.6, stacking: { mode: 'none', group: 'A' }, showPoints: 'auto', pointSize: 5, spanNulls: false,
    axisPlacement: 'auto', axisGridShow: true, axisCenteredZero: false, axisBorderShow: false,
    thresholdsStyle: { mode: 'off' }, hideFrom: { viz: false, legend: false, tooltip: false },
  },
};

// A dashed line and a small triangle at each annotation, and a shade over one that lasts, as Grafana draws them.
function Annotations({ builder, annotations }) {
  useLayoutEffect(() => {
    builder.addHook('draw', (plot) => {
      const { left, top, width, height } = plot.bbox, bottom = top + height, { ctx } = plot;
      const line = (x) => {
        ctx.setLineDash([5, 5]);
        ctx.beginPath();
        ctx.moveTo(x, top);
        ctx.lineTo(x, bottom);
        ctx.stroke();
      };
      for (const { from, to, colour } of annotations) {
        const [x, end] = [from, to].map((time) => Math.round(plot.valToPos(time, 'x', true)));
        if (x < left || end > left + width) {
          continue;
        }
        ctx.save();
        ctx.strokeStyle = ctx.fillStyle = colour;
        ctx.lineWidth = 1;
        line(x);
        if (end > x) {
          line(end);
          ctx.globalAlpha = 0.1;
          ctx.fillRect(x, top, end - x, height);
          ctx.globalAlpha = 1;
        }
        ctx.beginPath();
        ctx.moveTo(x - 5, bottom + 8);
        ctx.lineTo(end + 5, bottom + 8);
        ctx.lineTo(end, bottom);
        ctx.lineTo(x, bottom);
        ctx.fill();
        ctx.restore();
      }
    });
  }, [builder, annotations]);
  return null;
}

// NaN, such as a quotient of nothing by nothing, is a gap.
function withGaps(frames) {
  return frames.map((frame) => ({
    ...frame,
    fields: frame.fields.map((field) => ({ ...field, values: field.values.map((value) => (Number.isFinite(value) ? value : null)) })),
  }));
}

export function Panel({ frames, options, width, height, timeRange, annotations }) {
  return (
    <TimeSeries frames={withGaps(frames)} structureRev={1} timeRange={timeRange} timeZone="utc" width={width} height={height}
      legend={options.legend}>
      {(builder) => <Annotations builder={builder} annotations={annotations} />}
    </TimeSeries>
  );
}
