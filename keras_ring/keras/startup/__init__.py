"""What begins in a program when it has imported TensorFlow or Keras.

install        changes of TensorFlow and Keras that a job needs
saved_classes  registration of the classes that saved models name
"""
