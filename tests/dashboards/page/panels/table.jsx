// Grafana's table of one frame.
import { Table } from '@grafana/ui';

export const options = [];

export const defaults = { custom: { align: 'auto', cellOptions: { type: 'auto' }, inspect: false } };

export function Panel({ frames, width, height, timeRange, fieldConfig }) {
  return <Table data={frames[0]} width={width} height={height} timeRange={timeRange} fieldConfig={fieldConfig} />;
}
