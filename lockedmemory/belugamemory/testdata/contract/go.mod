// The part of Beluga AI v2.13.2 that the adapter touches: the same import paths and signatures, for machines that cannot have the
// real one. It requires nothing, as the modules of the workspace choose its versions: see contract.work at the root.
module github.com/lookatitude/beluga-ai/v2

go 1.25.7
