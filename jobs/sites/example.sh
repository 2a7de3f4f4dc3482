# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What is particular to one centre, and the only place for it: copy to jobs/sites/<centre>.sh and fill in. Used twice: source
# it before sbatch, which reads the SBATCH_* variables; the job sources it again by the name in BATHYS_SITE.
#
#   source jobs/sites/example.sh && sbatch jobs/eval.sh --model ...

export BATHYS_SITE=example
# export SBATCH_ACCOUNT=project123 SBATCH_PARTITION=standard

# The modules the program was built with (the same when it runs).
# module load gcc/12 openmpi/4.1 hdf5/1.14

# The network interface of MPI's TCP connections, where the first one found is the wrong one.
# export OMPI_MCA_btl_tcp_if_include=ib0

# Words for every srun, e.g. --cpu-bind=cores.
# shellcheck disable=SC2034  # read by slurm_step
site_srun_options=()
