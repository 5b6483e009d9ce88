// Grafana's big values, reduced and laid out by Grafana.
import { getDisplayValueAlignmentFactors, getFieldDisplayValues } from '@grafana/data';
import { BigValue, VizRepeater } from '@grafana/ui';

export const options = ['reduceOptions', 'colorMode', 'graphMode', 'textMode', 'orientation'];

export const defaults = {};

export function Panel({ frames, fieldConfig, options, width, height, theme }) {
  const values = getFieldDisplayValues({
    fieldConfig, reduceOptions: options.reduceOptions, replaceVariables: (text) => text, theme, data: frames,
    sparkline: options.graphMode !== 'none', timeZone: 'utc',
  });
  const drawn = ({ value, alignmentFactors, count, ...size }) => (
    <BigValue value={value.display} count={count} sparkline={value.sparkline} colorMode={options.colorMode}
      graphMode={options.graphMode} textMode={options.textMode} justifyMode="auto" alignmentFactors={alignmentFactors}
      theme={theme} width={size.width} height={size.height} />
  );
  return (
    <VizRepeater getValues={() => values} getAlignmentFactors={getDisplayValueAlignmentFactors} renderValue={drawn}
      source={frames} itemSpacing={3} orientation={options.orientation} autoGrid width={width} height={height} />
  );
}
