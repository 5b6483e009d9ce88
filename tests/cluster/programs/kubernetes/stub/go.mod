// Stands for the k8s.io/sample-* modules, which Kubernetes requires and never imports.
module empty

go 1.24.0
