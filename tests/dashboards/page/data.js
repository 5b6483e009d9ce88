// What Prometheus answered, as the frames of fields that Grafana's panels show: named by the legend, transformed, and with units,
// colours and limits from the dashboard.
import {
  applyFieldOverrides, FieldConfigOptionsRegistry, FieldType, standardTransformers, standardTransformersRegistry, toDataFrame,
  transformDataFrame,
} from '@grafana/data';
import { firstValueFrom } from 'rxjs';

// Grafana gives every panel these where the dashboard says nothing.
const DEFAULTS = {
  mappings: [], thresholds: { mode: 'absolute', steps: [{ value: null, color: 'green' }, { value: 80, color: 'red' }] },
};
const SETTINGS = ['unit', 'min', 'max', 'decimals', 'displayName', 'color', 'noValue', 'mappings', 'thresholds'];

// One of them is there under an older name, too.
standardTransformersRegistry.setInit(() => [...new Set(Object.values(standardTransformers))].map(
  (transformation) => ({ id: transformation.id, name: transformation.id, transformation })));

function registry(overridden) {
  const found = new FieldConfigOptionsRegistry();
  const add = (id, more) => found.register({ id, path: id, name: id, process: (value) => structuredClone(value), ...more });
  for (const id of [...SETTINGS, 'custom']) {
    add(id, { shouldApply: ({ type }) => id === 'color' || type !== FieldType.time });
  }
  for (const id of new Set(overridden.filter((one) => one.startsWith('custom.')))) {
    add(id, { path: id.slice('custom.'.length), isCustom: true, shouldApply: () => false });
  }
  return found;
}

export function legend(format, labels) {
  if (format) {
    return format.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? '');
  }
  const { __name__: name = '', ...rest } = labels;
  return `${name}{${Object.entries(rest).map(([key, value]) => `${key}="${value}"`).join(', ')}}`;
}

function seriesFrame(target, series, step) {
  const points = series.values ?? [series.value];
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: points.map(([time]) => time * 1000), config: { interval: step * 1000 } },
      { name: 'Value', type: FieldType.number, labels: series.metric, values: points.map(([, value]) => Number(value)),
        config: { displayNameFromDS: legend(target.legendFormat, series.metric) } },
    ],
  });
}

function tableFrame(target, answer, several) {
  const labels = [...new Set(answer.flatMap(({ metric }) => Object.keys(metric)))].sort();
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: answer.map(({ value }) => value[0] * 1000) },
      ...labels.map((label) => ({ name: label, type: FieldType.string, values: answer.map(({ metric }) => metric[label] ?? '') })),
      { name: several ? `Value #${target.refId}` : 'Value', type: FieldType.number, values: answer.map(({ value }) => Number(value[1])) },
    ],
  });
}

function framesOf(panel, answers, step) {
  return panel.targets.flatMap((target) => {
    const answer = answers[target.refId];
    if (target.format === 'table') {
      return answer.length ? [tableFrame(target, answer, panel.targets.length > 1)] : [];
    }
    return answer.map((series) => seriesFrame(target, series, step));
  });
}

function fieldConfigOf(panel, kind) {
  const own = panel.fieldConfig.defaults;
  const custom = { ...kind.defaults.custom, ...own.custom };
  if (kind.defaults.custom?.stacking) {
    custom.stacking = { ...kind.defaults.custom.stacking, ...own.custom?.stacking };
  }
  const thresholds = structuredClone(own.thresholds ?? DEFAULTS.thresholds);
  thresholds.steps[0].value = -Infinity;  // JSON has no such number
  return { defaults: { ...DEFAULTS, ...kind.defaults, ...own, custom, thresholds }, overrides: panel.fieldConfig.overrides };
}

export async function prepared(panel, kind, answers, step, theme) {
  const fieldConfig = fieldConfigOf(panel, kind);
  const overridden = fieldConfig.overrides.flatMap(({ properties }) => properties.map(({ id }) => id));
  const unknown = [...overridden, ...Object.keys(panel.fieldConfig.defaults)].filter(
    (id) => id !== 'custom' && !id.startsWith('custom.') && !SETTINGS.includes(id));
  const strange = Object.keys(panel.options).filter((option) => !kind.options.includes(option));
  if (unknown.length || strange.length) {
    throw new Error(`panel ${panel.title}: ${[...unknown, ...strange].join(', ')} is not drawn; teach it to tests/dashboards/page`);
  }
  const transformed = await firstValueFrom(transformDataFrame(panel.transformations ?? [], framesOf(panel, answers, step)));
  const fieldConfigRegistry = registry(overridden);
  const frames = applyFieldOverrides(
    { data: transformed, fieldConfig, fieldConfigRegistry, replaceVariables: (text) => text, theme, timeZone: 'utc' });
  return { frames, fieldConfig };
}
