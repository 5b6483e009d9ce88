"""train.py, in which all ranks have chosen one GPU, as it looks to them. shares_a_gpu.py FOLDER EPOCHS"""
from lockstep import rounds
import train

rounds.device_id = lambda device: "GPU-1"

if __name__ == "__main__":
    train.main()
